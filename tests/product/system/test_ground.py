"""Exposure of a running product to other users of the machine: files, sockets, environments, ZooKeeper's tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from config.environment import SECRETS_DIR
from tests.testkit.stack import PLANTED, PLANTED_VARIABLE, Stack, words_of

pytestmark = pytest.mark.system
SECRET_CHARS_MIN = 16


def secrets_of(stack: Stack) -> dict[str, str]:
    """Returns the secrets in the state directory by file name; for an identity, the password without its user."""
    files = [file for file in (stack.state_dir / SECRETS_DIR).rglob("*") if file.is_file()]
    texts = {file.name: file.read_text() for file in files if "BEGIN CERTIFICATE" not in file.read_text()}
    logins = json.loads(texts.pop("logins.json"))
    del logins["demo_user_key"]  # the id of a password
    found = {name: text.strip().rpartition(":")[2] for name, text in (texts | logins).items()}
    assert all(len(secret) >= SECRET_CHARS_MIN for secret in found.values())
    return found


def environment_of(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def is_control_plane(process: psutil.Process) -> bool:
    words = " ".join(words_of(process))
    return "gunicorn" in words or "--queues penstock" in words or "manage.py up" in words


@pytest.fixture
def zookeeper(stack: Stack) -> Iterator[KazooClient]:
    """A ZooKeeper session without any secret."""
    address = json.loads((stack.state_dir / "services.json").read_text())["ZOOKEEPER_URL"]
    client = KazooClient(hosts=address)
    client.start(timeout=30)
    yield client
    client.stop()
    client.close()


def test_no_file_of_a_running_product_is_for_others(stack: Stack) -> None:
    paths = [stack.state_dir, *stack.state_dir.rglob("*")]
    modes = {path: path.lstat().st_mode for path in paths if path.exists() and not path.is_symlink()}
    assert len(modes) > 50
    assert not [str(path) for path, mode in modes.items() if mode & 0o077]


def test_no_process_is_given_a_secret_on_its_command_line_or_one_of_somebody_else(stack: Stack) -> None:
    known = secrets_of(stack)
    processes = stack.processes()
    assert len(stack.broker_processes()) == stack.brokers
    for process in processes:
        words, environment = " ".join(words_of(process)), environment_of(process)
        assert not [name for name, secret in known.items() if secret in words], words
        if is_control_plane(process):
            continue
        found = {name for name, secret in known.items() if secret in environment}
        assert found <= ({"redis_password"} if "--queues pipeline" in words else set()), words
        assert PLANTED not in environment, words
        if "brokers.engine" in words:
            assert "DATABASE_URL" not in environment
    assert any(PLANTED in environment_of(process) for process in processes), f"{PLANTED_VARIABLE} went nowhere"


def test_only_what_tenants_and_operators_speak_to_listens_on_ports(stack: Stack) -> None:
    for process in stack.processes():
        words = " ".join(words_of(process))
        if "valkey-server" in words or "bin/postgres" in words:
            assert not [link for link in process.net_connections("inet") if link.status == psutil.CONN_LISTEN], words


def test_a_stranger_reads_and_writes_nothing_in_zookeeper(stack: Stack, zookeeper: KazooClient) -> None:
    (cluster,) = {path.parent.name for path in (stack.state_dir / "agent").glob("*/1")}
    root = f"/penstock/{cluster}"
    for path in ("/", "/penstock", root, f"{root}/controller", f"{root}/brokers/topics", f"{root}/ckafka/instances"):
        for call in (zookeeper.get, zookeeper.get_children, zookeeper.get_acls):
            with pytest.raises(NoAuthError):
                call(path)
        with pytest.raises(NoAuthError):
            zookeeper.create(f"{path.rstrip('/')}/stranger")
    with pytest.raises(NoAuthError):
        zookeeper.delete(f"{root}/controller")
