"""The whole product, started by its own `up` command once per session, when a test asks for it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from brokers.contract.ports import INTERNAL_PORTS_BELOW
from config.embedded.process import free_port, port_is_free
from config.environment import BASE_DIR
from config.supervisor.options import UpOptions
from tests.testkit.sharing import worker_share
from tests.testkit.waiting import eventually

START_TIMEOUT_S = 150.0
STOP_TIMEOUT_S = 60.0
# Below the kernel's range for outgoing connections, so that no client's socket takes a port meanwhile.
PORT_STEP = 100
PORT_BASES = range(20_000, 31_000, PORT_STEP)
# A product's internal and admin ports lie below its base, its instances' above: two steps more for those.
BASES_APART = INTERNAL_PORTS_BELOW // PORT_STEP + 3
TENANT_PORTS_LOOKED_AT = 60
OPEN_ROUTE = "open"
EVERYTHING = (("topic", "*"), ("group", "*"), ("transactional_id", "*"), ("cluster", "kafka-cluster"))
# A secret of a mail backend in the environment, which only processes that send mail may get.
PLANTED_VARIABLE = "MAIL_PASSWORD"
PLANTED = "planted-password-of-mail"
FOREIGN_VARIABLES = ("DATABASE_URL", "REDIS_URL", "ZOOKEEPER_URL", "SPARK_MASTER", "SECRET_KEY", "PENSTOCK_PUBLIC_URL")


def free_port_base(brokers: int) -> int:
    """Returns a first tenant port with free neighbours, and free internal and admin ports below it."""
    bases = worker_share(PORT_BASES)[BASES_APART:]
    for base in random.sample(bases, len(bases)):
        options = UpOptions(state_dir=Path("/"), port_base=base, brokers=brokers)
        ports = [*options.internal_ports, *options.admin_ports, *range(base, base + TENANT_PORTS_LOOKED_AT)]
        if all(port_is_free(port) for port in ports):
            return base
    raise AssertionError("no free range of ports")


@dataclass(kw_only=True)
class Stack:
    """One product: its state directory, its ports, and, while it runs, its process and ready block."""

    state_dir: Path
    http_port: int
    port_base: int
    brokers: int = 3
    demo: bool = True
    process: subprocess.Popen[bytes] | None = None
    ready: dict[str, Any] = field(default_factory=dict)

    @property
    def output_file(self) -> Path:
        return self.state_dir.with_suffix(".out")

    @property
    def ready_file(self) -> Path:
        return self.state_dir.with_suffix(".ready.json")

    @property
    def output(self) -> str:
        return self.output_file.read_text(encoding="utf-8") if self.output_file.exists() else ""

    def command(self, *more: str) -> list[str]:
        options = UpOptions(
            state_dir=self.state_dir,
            http_port=self.http_port,
            port_base=self.port_base,
            brokers=self.brokers,
            demo=self.demo,
            ready_file=self.ready_file,
        )
        return [sys.executable, str(BASE_DIR / "manage.py"), *options.arguments(), *more]

    def start(self) -> dict[str, Any]:
        """Starts, and waits for the ready block.

        Raises: AssertionError: with the output of the command.
        """
        self.ready_file.unlink(missing_ok=True)
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(), cwd=BASE_DIR
            )
        process = self.process
        eventually(
            lambda: self.ready_file.exists() or process.poll() is not None, within_s=START_TIMEOUT_S, what="ready"
        )
        assert process.poll() is None, f"up ended with {process.poll()}:\n{self.output}\n{self.log_tails()}"
        self.ready = json.loads(self.ready_file.read_text(encoding="utf-8"))
        return self.ready

    def demo_client(self) -> dict[str, str]:
        """Returns settings with which confluent-kafka connects to the demo instance as its user."""
        instance = self.ready["instance"]
        sasl = instance["sasl"]
        return {
            "bootstrap.servers": instance["bootstrap_servers"],
            "security.protocol": sasl["security_protocol"],
            "sasl.mechanism": sasl["mechanism"],
            "sasl.username": sasl["username"],
            "sasl.password": sasl["password"],
        }

    def open_bootstrap(self) -> str:
        """Returns bootstrap servers of the demo instance's plaintext route, whose clients have all rights. The route
        and its rules are created on first use.
        """
        instance = f"instances/{self.ready['instance']['id']}"
        if not any(route["name"] == OPEN_ROUTE for route in self._call("GET", f"{instance}/routes")["items"]):
            for resource_type, name in EVERYTHING:
                rule = {"principal": "User:ANONYMOUS", "operation": "all"}
                self._call("POST", f"{instance}/acls", rule | {"resource_type": resource_type, "resource_name": name})
            self._call("POST", f"{instance}/routes", {"name": OPEN_ROUTE, "security": "plaintext"})

        def bootstrap() -> str:
            instance = self._call("GET", f"instances/{self.ready['instance']['id']}")
            (route,) = (route for route in instance["routes"] if route["name"] == OPEN_ROUTE)
            return str(route["bootstrap_servers"]) if instance["status"]["phase"] == "running" else ""

        return str(eventually(bootstrap, within_s=30, what="the open route"))

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.ready['api_url']}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.ready['tenant']['token']}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def stop(self) -> int:
        """Sends Ctrl-C, and waits. Returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_TIMEOUT_S)

    def processes(self) -> list[psutil.Process]:
        """Returns every process that belongs to this state directory."""
        return processes_of(self.state_dir)

    def broker_processes(self) -> list[psutil.Process]:
        """Returns those of them that serve as brokers."""
        return [process for process in self.processes() if "brokers.engine" in words_of(process)]

    def log_tails(self, lines: int = 12) -> str:
        """Returns the end of every log, for a failing test's report."""
        tails = []
        for file in sorted(self.state_dir.rglob("*.log")):
            last = file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            tails.append("\n".join([f"--- {file.name}", *last]))
        return "\n".join(tails)


def environment() -> dict[str, str]:
    """Returns our environment without the addresses of external services, and with a foreign secret."""
    own_variables = {key: value for key, value in os.environ.items() if key not in FOREIGN_VARIABLES}
    return own_variables | {PLANTED_VARIABLE: PLANTED}


def processes_of(state_dir: Path) -> list[psutil.Process]:
    """Returns processes whose command line or working directory names the state directory."""
    result = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            belongs_here = any(str(state_dir) in word for word in words) or process.cwd().startswith(str(state_dir))
            belongs_here = belongs_here or process.environ().get("PENSTOCK_STATE_DIR") == str(state_dir)
        except psutil.Error:
            continue
        if belongs_here and process.status() != psutil.STATUS_ZOMBIE:
            result.append(process)
    return result


def words_of(process: psutil.Process) -> list[str]:
    """Returns the command line of a process; empty if it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def make_stack(folder: Path, *, brokers: int = 3, demo: bool = True) -> Stack:
    """Returns a product on free ports that is not started yet."""
    return Stack(
        state_dir=folder / "state",
        http_port=free_port(),
        port_base=free_port_base(brokers),
        brokers=brokers,
        demo=demo,
    )


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The running product with its demo instance. It is shared: leave other objects as you found them."""
    product = make_stack(tmp_path_factory.mktemp("stack"))
    try:
        product.start()
        yield product
    finally:
        if product.process is not None:
            product.stop()
            eventually(lambda: not product.processes(), within_s=20, what="the product to end")
