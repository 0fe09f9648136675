"""State directory: its lock, the running processes, and the assigned addresses."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from brokers.infra.process_identity import identity_of
from config.embedded.process import StartFailed, service_port
from config.environment import SERVICES_FILE
from config.supervisor.options import UpOptions
from config.supervisor.ready import down_command
from config.supervisor.run_processes import RunProcesses

PORTS_FILE = "ports.json"
LOCK_FILE = "supervisor.lock"
SHAPE_FILE = "shape.json"
RUN_FILE = "run.json"
MODES_FILE = "modes.json"
# Exists while a backup is being restored, and after an interrupted restore.
RESTORE_FILE = "restore.json"
# Everything that a run creates below the state directory.
CREATED_BY_RUNS = (
    "agent", "brokers", "celerybeat-schedule*", "java", "kafka", "logs", "postgres", "redis", "secrets", "spark",
    "zookeeper", LOCK_FILE, PORTS_FILE, RUN_FILE, SERVICES_FILE, SHAPE_FILE,
)  # fmt: skip
PERMISSIONS_OF_OTHERS = 0o077


class AlreadyRunning(StartFailed):
    """Another supervisor holds this state directory."""


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Paths below one state directory, and the supervisor's small files."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log_file(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """Creates the directory and checks that it is writable.

        Raises:
            StartFailed: it is not.
        """
        probe = self.root / f".writable.{os.getpid()}"
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.root.stat().st_mode & stat.S_ISVTX:
                raise StartFailed(
                    f"{self.root} is shared by all users of this machine.",
                    "Choose a directory in it, or elsewhere, with --state-dir.",
                )
            self.root.chmod(0o700)
            # The supervisor's log contains the ready block; others contain mails while no mail server is configured.
            self.logs.mkdir(mode=0o700, exist_ok=True)
            self.logs.chmod(0o700)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StartFailed(
                f"The state directory {self.root} cannot be written: {error.strerror or error}.",
                "Choose another one with --state-dir, or change its owner.",
            ) from error

    def tighten(self) -> None:
        """Makes files private that an earlier version created readable for others. The lock must be held."""
        if self._read(MODES_FILE).get("private"):
            return
        for pattern in CREATED_BY_RUNS:
            for top in self.root.glob(pattern):
                for path in _below(top):
                    _make_private(path)
        self._write(MODES_FILE, {"private": True})

    def lock(self) -> IO[str]:
        """Locks the directory for this process; the lock ends with the returned file or the process.

        Raises:
            AlreadyRunning: another supervisor has it.
        """
        stream = (self.root / LOCK_FILE).open("a+", encoding="ascii")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            raise self._already_running(self.holder()) from None
        stream.seek(0)
        stream.truncate()
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        return stream

    def require_free(self) -> None:
        """Raises `AlreadyRunning` if a supervisor holds the directory."""
        holder = self.holder()
        if holder is not None:
            raise self._already_running(holder)

    def _already_running(self, holder: int | None) -> AlreadyRunning:
        return AlreadyRunning(
            f"Penstock already runs on {self.root}" + (f" (process {holder})." if holder else "."),
            f"Stop it with `{down_command(self.root)}`, or choose another --state-dir.",
        )

    def restore_note(self) -> dict[str, Any]:
        """Returns the note of an unfinished restore; empty if there is none."""
        return self._read(RESTORE_FILE)

    def require_whole(self) -> None:
        """Raises `StartFailed` after an interrupted restore, which leaves neither the old state nor the new one."""
        note = self.restore_note()
        if note:
            raise StartFailed(
                f"A restore into {self.root} was interrupted.",
                f"Run it again: manage.py restore {note.get('backup', 'DIR')} --state-dir {self.root}",
            )

    def holder(self) -> int | None:
        """Returns the process id of the supervisor that holds the directory, or None."""
        file = self.root / LOCK_FILE
        if not file.exists():
            return None
        with file.open("r+", encoding="ascii") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = stream.read().strip()
                return int(text) if text.isdigit() else None
        return None

    def port(self, name: str, options: UpOptions) -> int:
        """Returns the loopback port of an internal service: the previous one if it is free and unassigned."""
        ports = self._read(PORTS_FILE)
        other_ports = {port for other, port in ports.items() if other != name}
        port = service_port(ports.get(name), options.ports_wanted | other_ports)
        if ports.get(name) != port:
            self._write(PORTS_FILE, ports | {name: port})
        return port

    def resolved_port_base(self, default: int) -> int:
        """Returns the first tenant port: the settled one, because addresses are permanent, otherwise the wanted one."""
        return int(self._read(SHAPE_FILE).get("port_base", default))

    def has_resolved_port_base(self) -> bool:
        """True if addresses may have been assigned."""
        return "port_base" in self._read(SHAPE_FILE)

    def resolve_port_base(self, port_base: int) -> None:
        """Settles the first tenant port, regardless of options of later starts."""
        if not self.has_resolved_port_base():
            self._write(SHAPE_FILE, self._read(SHAPE_FILE) | {"port_base": port_base})

    def resolved_kafka(self, default: bool) -> bool:
        """Returns True if an Apache Kafka belongs to this state directory, which may have records of instances."""
        return default or bool(self._read(SHAPE_FILE).get("kafka", False))

    def resolve_kafka(self) -> None:
        """Settles that an Apache Kafka belongs to this state directory, regardless of options of later starts."""
        self._write(SHAPE_FILE, self._read(SHAPE_FILE) | {"kafka": True})

    def write_addresses(self, addresses: dict[str, str]) -> None:
        """Writes the addresses of the services for other commands (`config.environment`)."""
        self._write(SERVICES_FILE, addresses)

    def record_run(self, run: str, pids: dict[str, int]) -> None:
        """Records a run and its children: the watchdog, or the next start, ends those that a killed supervisor left."""
        children = {}
        for name, pid in pids.items():
            try:
                children[name] = [pid, identity_of(pid)]
            except OSError:
                continue  # it has ended
        self._write(RUN_FILE, {"run": run, "children": children})

    def run_processes(self) -> RunProcesses:
        """Returns the processes of the last recorded run."""
        recorded = self._read(RUN_FILE)
        children = tuple((int(pid), identity) for pid, identity in recorded.get("children", {}).values())
        return RunProcesses(str(recorded.get("run", "none")), children)

    def _read(self, name: str) -> dict[str, Any]:
        file = self.root / name
        if not file.exists():
            return {}
        try:
            body = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            return {}  # truncated by a power failure: all of it can be determined again
        return body if isinstance(body, dict) else {}

    def _write(self, name: str, body: dict[str, Any]) -> None:
        write_private_json(self.root / name, body)


def _below(top: Path) -> Iterator[str]:
    """Yields a path and everything below it."""
    yield str(top)
    for folder, folders, files in os.walk(top):
        yield from (f"{folder}/{name}" for name in (*folders, *files))


def _make_private(path: str) -> None:
    """Removes permissions of others. Links, vanished files and files of other users are skipped."""
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode) and mode & PERMISSIONS_OF_OTHERS:
            os.chmod(path, stat.S_IMODE(mode) & ~PERMISSIONS_OF_OTHERS)  # noqa: PTH101 (a path of thousands)
    except (FileNotFoundError, PermissionError):
        return


def write_private_json(file: Path, body: dict[str, Any]) -> None:
    """Replaces a private file atomically and durably; it contains passwords."""
    draft = _draft_of(file)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(body, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(file)


def require_writable(file: Path) -> None:
    """Checks that `write_private_json` would succeed without creating the file, whose existence others wait for.

    Raises:
        OSError: it would fail.
    """
    draft = _draft_of(file)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    draft.unlink()


def _draft_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.{os.getpid()}")
