"""The supervisor under faults: full disks, power cuts, a second start, a closed terminal."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from config.embedded.postgres import EmbeddedPostgres
from config.embedded.process import Child, StartFailed
from config.environment import ensure_secret
from config.supervisor import command, preflight, seed
from config.supervisor.options import UpOptions
from config.supervisor.progress import WAIT_REPORT_INTERVAL_S, WAIT_REPORTED_AFTER_S, StartProgress
from config.supervisor.state import PORTS_FILE, RUN_FILE, SHAPE_FILE, StateDirectory
from config.supervisor.up import Supervisor
from config.supervisor.watch import BACKOFF_FIRST_S, Stage, Watch
from tests.component.config.test_supervisor import Clock
from tests.testkit.waiting import eventually

NO_SPACE = OSError(28, "No space left on device")


def full(*_args: object, **_options: object) -> NoReturn:
    raise NO_SPACE


class FullFile(io.StringIO):
    """A log on a full disk."""

    def write(self, _text: str, /) -> NoReturn:
        raise NO_SPACE

    def flush(self) -> NoReturn:
        raise NO_SPACE


def sleeper(tmp_path: Path) -> Child:
    return Child(
        name="web", command=(sys.executable, "-c", "import signal; signal.pause()"), log_file=tmp_path / "web.log"
    )


def test_a_full_disk_does_not_end_what_runs(tmp_path: Path) -> None:
    clock = Clock()
    watch = Watch(progress=StartProgress(FullFile()), on_change=full, clock=clock)
    child = sleeper(tmp_path)
    child.start()
    watch.add(child, Stage.PROGRAM)
    first = child.process
    assert first is not None
    first.kill()
    eventually(lambda: child.exit_code is not None)
    watch.tick()
    clock.now_s += BACKOFF_FIRST_S
    watch.tick()
    assert child.process is not first
    assert watch.stop() == []


def test_a_child_that_cannot_even_be_started_is_tried_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    watch = Watch(progress=StartProgress(), on_change=lambda _pids: None, clock=clock)
    child = sleeper(tmp_path)
    child.start()
    watch.add(child, Stage.PROGRAM)
    assert child.process is not None
    child.process.kill()
    eventually(lambda: child.exit_code is not None)
    watch.tick()
    clock.now_s += BACKOFF_FIRST_S
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", full)
        watch.tick()
        watch.tick()
    assert f"cannot be started ({NO_SPACE}); starting it again in {2 * BACKOFF_FIRST_S:g} s" in capsys.readouterr().out
    clock.now_s += 2 * BACKOFF_FIRST_S
    watch.tick()
    assert child.is_running
    assert watch.stop() == []


def test_a_second_start_in_the_background_leaves_the_ready_file_and_the_log_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDirectory(tmp_path)
    state.prepare()
    ready_file, log_file = tmp_path / "ready.json", state.log_file("supervisor")
    ready_file.write_text("{}")
    log_file.write_text("ready")
    with state.lock():
        assert command.detach(UpOptions(state_dir=tmp_path, detach=True)) == command.EXIT_FAILED
    assert f"already runs on {tmp_path} (process {os.getpid()})" in capsys.readouterr().err
    assert ready_file.read_text() == "{}"
    assert log_file.read_text() == "ready"


def test_logs_are_for_their_owner_because_the_ready_block_is_in_one(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o755)
    StateDirectory(tmp_path).prepare()
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700


def test_the_ready_file_of_a_killed_run_is_gone_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("{}")
    shown: list[Path] = []
    rename = Path.rename

    def noted(source: Path, target: Path) -> Path:
        shown.append(target)
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", noted)

    def refuse(_options: UpOptions) -> NoReturn:
        assert not ready_file.exists()
        assert ready_file not in shown, "whoever waits for it to exist would have taken it for ready"
        raise StartFailed("far enough")

    monkeypatch.setattr(preflight, "check", refuse)
    supervisor = Supervisor(UpOptions(state_dir=tmp_path / "state", ready_file=ready_file), StartProgress())
    with pytest.raises(StartFailed, match="far enough"):
        supervisor.start()
    supervisor.stop()
    assert supervisor._lock is not None
    supervisor._lock.close()


def test_a_ready_file_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    ready_file = tmp_path / "nowhere" / "ready.json"
    supervisor = Supervisor(UpOptions(state_dir=tmp_path / "state", ready_file=ready_file), StartProgress())
    with pytest.raises(StartFailed, match="cannot be written") as refusal:
        supervisor.start()
    assert "--ready-file" in refusal.value.next_step
    supervisor.stop()
    assert supervisor._lock is not None
    supervisor._lock.close()


@pytest.mark.parametrize("torn", ["", "\0\0\0\0", "[]"])
def test_files_torn_by_a_power_cut_do_not_keep_it_from_starting(tmp_path: Path, torn: str) -> None:
    for name in (PORTS_FILE, SHAPE_FILE, RUN_FILE):
        (tmp_path / name).write_text(torn)
    state = StateDirectory(tmp_path)
    assert state.run_processes().members() == []
    assert state.port("redis", UpOptions(state_dir=tmp_path)) > 0
    assert state.resolved_port_base(19_000) == 19_000


def test_an_empty_secret_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "control_secret").touch()
    assert ensure_secret(tmp_path, "control_secret").stat().st_size > 0


def test_passwords_are_kept_before_anybody_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def stopped(*, email: str, password: str) -> NoReturn:
        given.append(password)
        raise KeyboardInterrupt(email)

    monkeypatch.setattr(seed.tenant_services, "create_operator", stopped)
    state = StateDirectory(tmp_path)
    (tmp_path / "secrets").mkdir()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            seed.ensure_accounts(state, with_demo=True, say=print)
    assert given[0] == given[1]


def test_a_port_that_two_would_want_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="Port 18101 is wanted twice: for the console and for a broker's admin port"):
        preflight.check(UpOptions(state_dir=tmp_path, http_port=18_101))


def test_a_first_start_that_is_refused_leaves_the_choice_of_ports_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(options: UpOptions) -> NoReturn:
        asked.append(options.port_base)
        raise StartFailed("Port 18001 is taken.", "Choose another port with --port-base.")

    monkeypatch.setattr(preflight, "check", refuse)
    for port_base in (19_000, 29_000):
        supervisor = Supervisor(UpOptions(state_dir=tmp_path, port_base=port_base), StartProgress())
        with pytest.raises(StartFailed, match="is taken"):
            supervisor.start()
        assert supervisor._lock is not None
        supervisor._lock.close()
    assert asked == [19_000, 29_000]


def test_a_process_started_to_outlive_its_terminal_does() -> None:
    script = (
        "import os, signal; from config.supervisor.signals import raise_on_stop_signals\n"
        "raise_on_stop_signals(); os.kill(os.getpid(), signal.SIGHUP); print('lives')"
    )

    def run(before_exec: signal.Handlers) -> str:
        return subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, before_exec),
        ).stdout

    assert run(signal.SIG_IGN) == "lives\n"
    assert run(signal.SIG_DFL) == ""


def test_a_lock_file_that_names_a_stranger_does_not_keep_postgresql_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", log_file=tmp_path / "postgres.log")
    monkeypatch.setattr(server, "user", None)
    monkeypatch.setattr(server.child, "command", (sys.executable, "-c", ""))
    server.data.mkdir(parents=True)
    (server.data / "PG_VERSION").write_text("18\n")
    lock = server.data / "postmaster.pid"
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        lock.write_text(f"{stranger.pid}\n{server.data}\n1\n")
        server.start()
        # Its parent's id: PostgreSQL takes that one, and its own, for those of a server that is gone.
        assert lock.read_text() == f"{os.getpid()}\n{server.data}\n1\n"
    finally:
        stranger.kill()
        stranger.wait()
        server.child.stop()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Returns the processes that `up --detach` starts, and ends them after the test."""
    result: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        result.append(popen(*words, **options))
        return result[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    yield result
    for process in result:
        process.kill()
        process.wait()


def background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> UpOptions:
    """Makes `up --detach` start this program instead of the supervisor; `READY` in it is the ready file."""
    folder = tmp_path / "clone"
    folder.mkdir()
    ready_file = tmp_path / "state" / "ready.json"
    (folder / "manage.py").write_text(f"import signal, sys\nREADY = {str(ready_file)!r}\n{program}\n")
    monkeypatch.setattr(command, "BASE_DIR", folder)
    return UpOptions(state_dir=tmp_path / "state", detach=True)


def test_a_start_in_the_background_that_takes_long_goes_on_and_says_what_it_waits_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[subprocess.Popen[bytes]],
) -> None:
    monkeypatch.setattr(command, "DETACH_TIMEOUT_S", 3.0)
    words = "'Still waiting for the brokers', flush=True"
    options = background(tmp_path, monkeypatch, f"print({words}); signal.pause()")
    assert command.detach(options) == command.EXIT_NOT_READY
    shown = capsys.readouterr()
    assert started[0].poll() is None
    assert f"Process {started[0].pid} goes on starting in the background" in shown.err
    assert "Its last word: Still waiting for the brokers" in shown.err
    assert str(tmp_path / "state" / "ready.json") in shown.err
    assert str(tmp_path / "state" / "logs" / "supervisor.log") in shown.err
    assert "down --state-dir" in shown.err


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("open(READY, 'w').close(); signal.pause()", command.EXIT_OK),
        ("sys.exit(1)", command.EXIT_FAILED),
        ("print('Stopped')", command.EXIT_FAILED),  # by `down`, before it was ready
    ],
)
@pytest.mark.usefixtures("started")
def test_a_start_in_the_background_answers_as_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str, code: int
) -> None:
    assert command.detach(background(tmp_path, monkeypatch, program)) == code
    assert ("Runs in the background" in capsys.readouterr().out) == (code == command.EXIT_OK)


def test_a_long_wait_names_the_awaited_program() -> None:
    clock, out = Clock(), io.StringIO()
    waiting = StartProgress(out, clock).waiting("the brokers", Path("logs/agent.log"))
    waiting()
    clock.now_s += WAIT_REPORTED_AFTER_S - 1
    waiting()
    assert out.getvalue() == ""
    clock.now_s += 1
    waiting()
    waiting()
    assert out.getvalue() == "  10.0 s  Still waiting for the brokers (see logs/agent.log)\n"
    clock.now_s += WAIT_REPORT_INTERVAL_S
    waiting()
    assert out.getvalue().count("Still waiting") == 2
