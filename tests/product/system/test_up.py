"""The first `manage.py up`: it prints one block, and everything in it works."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from config.environment import BASE_DIR
from tests.testkit.stack import Stack, environment, free_port_base, make_stack, words_of
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.system
READY_TARGET_S = 15.0


def get(url: str, token: str | None = None) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def secret_files(stack: Stack) -> list[Path]:
    """Returns the secret files; certificates are not secret."""
    files = (file for file in (stack.state_dir / "secrets").rglob("*") if file.is_file())
    return [file for file in files if file.suffix != ".json" and b"BEGIN CERTIFICATE" not in file.read_bytes()]


def run_up(stack: Stack) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        stack.command(), env=environment(), cwd=BASE_DIR, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_ready_file_is_private_and_complete(stack: Stack) -> None:
    assert stat.S_IMODE(stack.ready_file.stat().st_mode) == 0o600
    assert set(stack.ready) == {"console_url", "api_url", "operator", "tenant", "instance"}
    sasl = stack.ready["instance"]["sasl"]
    assert set(sasl) == {"mechanism", "username", "password", "security_protocol", "ca_file"}
    assert (sasl["security_protocol"], sasl["ca_file"]) == ("SASL_PLAINTEXT", None)
    assert re.fullmatch(r"ins-[a-z0-9]{8}", stack.ready["instance"]["id"])


def test_web_is_alive_and_ready(stack: Stack) -> None:
    assert get(f"{stack.ready['console_url']}/healthz") == {"status": "ok"}
    assert get(f"{stack.ready['console_url']}/readyz") == {"ready": True, "reasons": [], "degraded": []}


def test_the_printed_token_sees_the_demo_instance(stack: Stack) -> None:
    page = get(f"{stack.ready['api_url']}instances", stack.ready["tenant"]["token"])
    instance = next(item for item in page["items"] if item["id"] == stack.ready["instance"]["id"])
    assert instance["status"]["phase"] == "running"


def test_the_operators_token_is_printed_and_the_command_prints_it_again(stack: Stack) -> None:
    token = stack.ready["operator"]["token"]
    assert f"Authorization: Bearer {token}   (operator)" in stack.output
    (cluster,) = get(f"{stack.ready['api_url']}operator/clusters", token)["items"]
    assert cluster["name"] == "local"
    command = [sys.executable, str(BASE_DIR / "manage.py"), "operator_token", "--state-dir", str(stack.state_dir)]
    printed = subprocess.run(
        command, env=environment(), cwd=BASE_DIR, capture_output=True, text=True, timeout=60, check=True
    )
    assert printed.stdout == f"{token}\n"


def test_an_instance_without_a_topic_is_purged_when_it_is_deleted_and_another_one_on_request(stack: Stack) -> None:
    """Real brokers close an instance to clients before its topics are deleted and its capacity is released."""
    api, token = stack.ready["api_url"], stack.ready["tenant"]["token"]

    def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(f"{api}{path}", method=method, data=json.dumps(body or {}).encode())
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def phase_of(instance_id: str) -> str:
        try:
            return str(get(f"{api}instances/{instance_id}", token)["status"]["phase"])
        except urllib.error.HTTPError as error:
            assert error.code == 404
            return "gone"

    def is_running(instance_id: str) -> bool:
        return phase_of(instance_id) == "running"

    made = [call("POST", "instances", {"name": name, "storage_gb": 20})["resource_id"] for name in ("empty", "kept")]
    for instance_id in made:
        eventually(partial(is_running, instance_id), within_s=60, what="a new instance")
    empty, kept = made
    call("POST", f"instances/{kept}/topics", {"name": "orders", "partitions": 1})
    assert call("DELETE", f"instances/{empty}")["steps"][0]["data"] == {"restorable_until": None}
    assert call("DELETE", f"instances/{kept}")["steps"][0]["data"]["restorable_until"]
    eventually(lambda: phase_of(empty) == "gone", within_s=60, what="the empty instance to be purged")
    assert phase_of(kept) == "deleting"
    call("POST", f"instances/{kept}/restore")
    eventually(partial(is_running, kept), within_s=60, what="the restored instance")
    call("DELETE", f"instances/{kept}")
    call("POST", f"instances/{kept}/purge")
    eventually(lambda: phase_of(kept) == "gone", within_s=60, what="the other instance to be purged")


def test_the_printed_commands_produce_and_consume(stack: Stack) -> None:
    commands = [line.strip() for line in stack.output.splitlines() if " -m kafka." in line]
    assert len(commands) == 2
    said = [
        subprocess.run(command, shell=True, cwd=BASE_DIR, capture_output=True, text=True, timeout=60, check=False)
        for command in commands
    ]
    assert said[0].returncode == 0, said[0].stderr
    assert "hello" in said[1].stdout, said[1].stderr
    assert "world" in said[1].stdout


def test_a_response_carries_the_security_headers(stack: Stack) -> None:
    with urllib.request.urlopen(f"{stack.ready['console_url']}/accounts/login/", timeout=20) as answer:
        headers = answer.headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"


def test_no_program_shows_a_secret_on_its_command_line(stack: Stack) -> None:
    secrets = [file.read_text().strip() for file in secret_files(stack)]
    secrets += [stack.ready[who]["token"] for who in ("tenant", "operator")] + [stack.ready["operator"]["password"]]
    for process in stack.processes():
        words = " ".join(words_of(process))
        assert not [secret for secret in secrets if secret in words], process.pid


def test_no_log_holds_a_secret(stack: Stack) -> None:
    secrets = [file.read_text().strip() for file in secret_files(stack)]
    secrets += [stack.ready[who][what] for who in ("tenant", "operator") for what in ("token", "password")]
    # Topics are deleted meanwhile, over which `rglob` fails.
    for file in (Path(folder, name) for folder, _, names in os.walk(stack.state_dir) for name in names):
        if file.suffix != ".log":
            continue
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        assert not [secret for secret in secrets if secret in text], file.name


def test_everything_listens_on_loopback(stack: Stack) -> None:
    ours = {process.pid for process in stack.processes()}
    links = [link for link in psutil.net_connections(kind="tcp") if link.status == psutil.CONN_LISTEN]
    outside = {link.laddr.ip for link in links if link.pid in ours} - {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert not outside


def test_a_second_start_on_the_same_state_is_refused_and_harms_nothing(stack: Stack) -> None:
    before = lasting(stack)
    refused = run_up(stack)
    assert refused.returncode == 1
    assert "already runs" in refused.stderr
    assert "manage.py down" in refused.stderr
    assert stack.ready_file.exists()
    assert before <= lasting(stack)


def lasting(stack: Stack) -> set[int]:
    """Returns the direct children of the supervisor. Their own children (database sessions, Spark's workers) change."""
    assert stack.process is not None
    return {child.pid for child in psutil.Process(stack.process.pid).children()}


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    product = make_stack(tmp_path)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", product.http_port))
        holder.listen()
        refused = run_up(product)
    assert refused.returncode == 1
    assert f"Port {product.http_port}" in refused.stderr
    assert "--http-port" in refused.stderr
    assert not product.processes()


def test_a_state_directory_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    product = Stack(state_dir=tmp_path / "state", http_port=1, port_base=free_port_base(1), brokers=1)
    refused = run_up(product)
    assert refused.returncode == 1
    assert "cannot be written" in refused.stderr
    assert "--state-dir" in refused.stderr
