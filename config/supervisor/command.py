"""Command line behaviour of `manage.py up` and `down`: exit codes, error texts, and running in the background."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from config.embedded.process import PRIVATE_UMASK, StartFailed
from config.environment import BASE_DIR
from config.supervisor.options import DownOptions, UpOptions, parse
from config.supervisor.progress import StartProgress
from config.supervisor.ready import down_command
from config.supervisor.signals import StopRequested, ignore_stop_signals, raise_on_stop_signals
from config.supervisor.state import StateDirectory

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_NOT_READY = 3  # in the background, and still starting
DOWN_TIMEOUT_S = 60.0
DETACH_TIMEOUT_S = 180.0
POLL_S = 0.05
OPEN_FILES = 65_536


def run(arguments: Sequence[str]) -> int:
    """Runs one of the two commands. Returns the exit code."""
    options = parse(arguments)
    if isinstance(options, DownOptions):
        return down(options)
    os.umask(PRIVATE_UMASK)  # also of all child processes
    return detach(options) if options.detach else up(options)


def up(options: UpOptions) -> int:
    """Starts everything, monitors it, and stops it when asked to."""
    from config.supervisor.up import Supervisor

    progress = StartProgress()
    os.environ["PENSTOCK_STATE_DIR"] = str(options.state_dir)
    _allow_open_files()
    supervisor = Supervisor(options, progress)
    raise_on_stop_signals()
    try:
        supervisor.start()
        supervisor.watch.run()
    except StopRequested as request:
        ignore_stop_signals()
        progress.step(f"Stopping ({request})")
        exit_code = EXIT_OK
    except StartFailed as failure:
        ignore_stop_signals()
        _explain(failure)
        exit_code = EXIT_FAILED
    finally:
        ignore_stop_signals()
        killed = supervisor.stop()
    if killed:
        progress.step(f"Had to be killed: {', '.join(killed)}")
    if exit_code == EXIT_OK:
        progress.step("Stopped")
    return exit_code


def down(options: DownOptions) -> int:
    """Stops the supervisor of a state directory and waits until all its processes have ended."""
    state = StateDirectory(options.state_dir)
    pid = state.holder()
    if pid is None:
        print(f"Nothing runs on {options.state_dir}.")  # noqa: T201
        return EXIT_OK
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    while _is_alive(pid):
        if time.monotonic() > deadline:
            _explain(StartFailed(f"Process {pid} did not stop within {DOWN_TIMEOUT_S:g} s.", f"kill -9 {pid}"))
            return EXIT_FAILED
        time.sleep(POLL_S)
    print(f"Stopped (process {pid}).")  # noqa: T201
    return EXIT_OK


def detach(options: UpOptions) -> int:
    """Starts a supervisor in the background, shows its output until it is ready, and leaves it running.

    Returns `EXIT_NOT_READY` after a timeout; a failing start ends by itself.
    """
    state = StateDirectory(options.state_dir)
    ready_file = options.ready_file or options.state_dir / "ready.json"
    try:
        state.prepare()
        state.require_free()  # otherwise the files of the running supervisor would be lost
        ready_file.unlink(missing_ok=True)
    except StartFailed as failure:
        _explain(failure)
        return EXIT_FAILED
    log_file = state.log_file("supervisor")
    command = [sys.executable, str(BASE_DIR / "manage.py"), *options.arguments()]
    if options.ready_file is None:
        command += ["--ready-file", str(ready_file)]
    log_file.unlink(missing_ok=True)
    with os.fdopen(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=Path.cwd()
        )
    with log_file.open("rb") as log_stream:
        is_given_up = _follow(process, ready_file, log_stream)
    if process.poll() is not None and not ready_file.exists():
        return process.returncode or EXIT_FAILED  # 0: it was stopped meanwhile
    if is_given_up:
        _explain_unready(process.pid, options.state_dir, ready_file, log_file)
        return EXIT_NOT_READY
    stop = down_command(options.state_dir)
    print(f"Runs in the background as process {process.pid}. Stop it with: {stop}")  # noqa: T201
    return EXIT_OK


def _follow(process: subprocess.Popen[bytes], ready_file: Path, log_stream: BinaryIO) -> bool:
    """Shows the output of a supervisor in the background. True if it neither got ready nor ended before the timeout."""
    deadline = time.monotonic() + DETACH_TIMEOUT_S
    is_given_up = False
    try:
        while not ready_file.exists() and process.poll() is None and not is_given_up:
            _copy(log_stream.read())
            time.sleep(POLL_S)
            is_given_up = time.monotonic() >= deadline
        time.sleep(POLL_S)
    except KeyboardInterrupt:
        is_given_up = True  # it has its own session and continues
    _copy(log_stream.read())
    return is_given_up and not ready_file.exists()


def _explain_unready(pid: int, state_dir: Path, ready_file: Path, log_file: Path) -> None:
    """Explains that the start takes long. It is not stopped, because a migration or a recovery would only
    start over.
    """
    lines = log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    print(  # noqa: T201
        f"\nNot ready yet. Process {pid} goes on starting in the background.\n"
        f"Its last word: {lines[-1].strip() if lines else 'none'}\n"
        f"Next step:     wait until {ready_file} exists; what it says meanwhile is in {log_file}.\n"
        f"               Or stop it with: {down_command(state_dir)}",
        file=sys.stderr,
    )


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _allow_open_files() -> None:
    """Raises the limit of open files, which children inherit. A broker has a file per segment and connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _copy(text: bytes) -> None:
    sys.stdout.write(text.decode("utf-8", "replace"))
    sys.stdout.flush()


def _explain(failure: StartFailed) -> None:
    print(f"\nCannot go on: {failure.detail}", file=sys.stderr)  # noqa: T201
    if failure.next_step:
        print(f"Next step:    {failure.next_step}", file=sys.stderr)  # noqa: T201
