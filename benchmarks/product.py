"""The whole product, started for a benchmark in a state directory of its own, and the REST calls of benchmarks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

START_TIMEOUT_S = 180
CLUSTER_RULE = {"resource_type": "cluster", "resource_name": "kafka-cluster"}
CLONE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A running product: its state directory, its ready block, its start-up time, and its supervisor process."""

    state_dir: Path
    ready: dict[str, Any]
    ready_after_s: float
    supervisor: psutil.Process

    def broker_pids(self) -> list[int]:
        """Returns the process ids of the broker engines in order of broker id (the order of their settings files)."""
        settings_and_pids = []
        for process in self.supervisor.children(recursive=True):
            try:
                command = process.cmdline()
            except psutil.Error:
                continue  # it ended meanwhile
            if "brokers.engine" in command:
                settings_and_pids.append((command[command.index("--settings") + 1], process.pid))
        return [pid for _, pid in sorted(settings_and_pids)]

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Makes one REST call as the demo tenant; raises `urllib.error.HTTPError` on a refusal."""
        request = urllib.request.Request(
            self.ready["api_url"].rstrip("/") + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.ready['tenant']['token']}",
                "Content-Type": "application/json",
                "Idempotency-Key": str(uuid.uuid4()),
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else {}

    def create_instance(self, **fields: Any) -> str:
        """Creates an open instance, whose clients need neither user nor rule; returns its id without waiting."""
        routes = [{"name": "open", "security": "plaintext"}]
        settings = {"allow_everyone_if_no_acl": True, **fields.pop("settings", {})}
        return self.call("POST", "/instances", {"routes": routes, "settings": settings, **fields})["resource_id"]

    def let_everybody_administer(self, instance_id: str) -> None:
        """Creates a rule by which clients may administer the instance; an open instance has none by default."""
        rule = {"principal": "User:*", "operation": "all"}
        self.call("POST", f"/instances/{instance_id}/acls", rule | CLUSTER_RULE)

    def wait_running(self, instance_id: str, timeout_s: float = 60) -> dict[str, Any]:
        """Waits until the instance runs and returns it. Raises SystemExit if it fails or takes too long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            instance = self.call("GET", f"/instances/{instance_id}")
            phase = instance["status"]["phase"]
            if phase == "running":
                return instance
            if phase == "failed":
                raise SystemExit(f"{instance_id} failed: {instance['status']['reason']}")
            time.sleep(0.02)
        raise SystemExit(f"{instance_id} did not run within {timeout_s} s")


def bootstrap_of(instance: dict[str, Any]) -> str:
    """Returns the addresses of an instance's brokers as a bootstrap string."""
    servers = instance["bootstrap_servers"]
    return servers if isinstance(servers, str) else ",".join(servers)


def free_port(count: int = 1) -> int:
    """Returns the first of `count` consecutive ports that are free on loopback."""
    for first in range(30_000, 60_000, max(count, 50)):
        sockets = []
        try:
            for port in range(first, first + count):
                probe = socket.socket()
                sockets.append(probe)
                probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for probe in sockets:
                probe.close()
    raise SystemExit("no free ports on loopback")


@contextmanager
def running(state_dir: Path, *, brokers: int = 3, instances: int = 200) -> Iterator[Product]:
    """Starts `manage.py up` (with ports for `instances`), waits for the ready file, and stops the product
    at the end.
    """
    ready_file, log = state_dir / "ready.json", state_dir / "up.log"
    state_dir.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    http_port = free_port(1 + brokers * instances)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable, str(CLONE / "manage.py"), "up",
                "--state-dir", str(state_dir), "--brokers", str(brokers),
                "--http-port", str(http_port), "--port-base", str(http_port + 1),
                "--ready-file", str(ready_file),
            ],
            stdout=output, stderr=subprocess.STDOUT, cwd=CLONE,
        )  # fmt: skip
    try:
        while not ready_file.exists():
            if process.poll() is not None or time.monotonic() - started_s > START_TIMEOUT_S:
                raise SystemExit(f"the product did not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.05)
        yield Product(
            state_dir=state_dir,
            ready=json.loads(ready_file.read_text()),
            ready_after_s=time.monotonic() - started_s,
            supervisor=psutil.Process(process.pid),
        )
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_in_shell(product: Product, code: str) -> dict[str, Any]:
    """Runs the code in `manage.py shell` of the product; returns its last line of output as JSON."""
    shell = subprocess.run(
        [sys.executable, str(CLONE / "manage.py"), "shell", "-v", "0", "-c", code],
        check=True, cwd=CLONE, stdout=subprocess.PIPE,
        env={**os.environ, "PENSTOCK_STATE_DIR": str(product.state_dir)},
    )  # fmt: skip
    figures: dict[str, Any] = json.loads(shell.stdout.splitlines()[-1])
    return figures
