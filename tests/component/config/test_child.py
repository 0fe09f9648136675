"""A supervised child: stopped by SIGTERM, killed if it does not react, and never left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from config.embedded import process
from config.embedded.process import Child, StartFailed, free_port, port_is_free, service_port, wait_until
from tests.testkit.waiting import eventually

SLEEPER = "import signal, sys; print('up', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
PARENT = """
import signal, sys
from pathlib import Path
from config.embedded.process import Child
child = Child(name="child", command=(sys.executable, "-c", {program!r}), log_file=Path({log!r}))
child.start()
print(child.process.pid, flush=True)
signal.pause()
"""


def child_of(tmp_path: Path, program: str, *, stop_timeout_s: float = 10.0) -> Child:
    return Child(
        name="child",
        command=(sys.executable, "-c", program),
        log_file=tmp_path / "child.log",
        stop_timeout_s=stop_timeout_s,
    )


def started(tmp_path: Path, program: str, *, stop_timeout_s: float = 10.0) -> Child:
    child = child_of(tmp_path, program, stop_timeout_s=stop_timeout_s)
    child.start()
    wait_until(lambda: "up" in child.log_tail(), child=child, timeout_s=20)
    return child


def test_a_child_stops_when_asked(tmp_path: Path) -> None:
    child = started(tmp_path, SLEEPER)
    assert child.stop()
    assert child.exit_code == -signal.SIGTERM


def test_a_deaf_child_is_killed(tmp_path: Path) -> None:
    child = started(tmp_path, DEAF, stop_timeout_s=0.3)
    assert not child.stop()
    assert child.exit_code == -signal.SIGKILL


def test_a_child_that_ends_while_starting_says_why(tmp_path: Path) -> None:
    child = child_of(tmp_path, "import sys; sys.exit('the disk is on fire')")
    child.start()
    with pytest.raises(StartFailed, match="the disk is on fire"):
        wait_until(lambda: False, child=child, timeout_s=20)


def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = PARENT.format(program=SLEEPER, log=str(tmp_path / "child.log"))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    eventually(lambda: not psutil.pid_exists(pid), what="the orphan to end")


def test_a_taken_port_is_not_handed_out() -> None:
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert not port_is_free(port)
        assert free_port(preferred=port) != port
    assert free_port(preferred=port) == port


@pytest.mark.parametrize(
    ("message", "where"), [("32768 65535", range(10_000, 32_768)), ("1024 60000", range(60_001, 65_536))]
)
def test_a_service_has_a_port_beside_those_of_outgoing_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, where: range
) -> None:
    monkeypatch.setattr(process, "OUTGOING_PORTS_FILE", tmp_path / "range")
    (tmp_path / "range").write_text(f"{message}\n")
    taken = where[len(where) // 2]
    port = service_port(taken, avoid={taken})
    assert port in where
    assert port != taken
    assert service_port(port) == port


@pytest.mark.parametrize("message", ["1024 65535", "", "many"])
def test_where_outgoing_connections_may_have_every_port_a_service_has_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr(process, "OUTGOING_PORTS_FILE", tmp_path / "range")
    (tmp_path / "range").write_text(message)
    assert service_port() > 0
