"""The state directory: who holds it, what runs in it, and which addresses it gave out."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from config.embedded.process import StartFailed, free_port
from config.environment import SERVICES_FILE
from config.supervisor.family import Family
from config.supervisor.ready import down_command

PORTS_FILE = "ports.json"
LOCK_FILE = "supervisor.lock"
SHAPE_FILE = "shape.json"
RUN_FILE = "run.json"


class AlreadyRunning(StartFailed):
    """Another supervisor holds this state directory."""


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Paths below one state directory and the small files the supervisor keeps there."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log_file(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """Make the directory and prove that it can be written.

        Raises:
            StartFailed: it cannot.
        """
        probe = self.root / f".writable.{os.getpid()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StartFailed(
                f"The state directory {self.root} cannot be written: {error.strerror or error}.",
                "Choose another one with --state-dir, or change its owner.",
            ) from error

    def lock(self) -> IO[str]:
        """Take the directory for this process; the lock goes with the returned file (and with the process).

        Raises:
            AlreadyRunning: another supervisor has it.
        """
        stream = (self.root / LOCK_FILE).open("a+", encoding="ascii")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            holder = self.holder()
            raise AlreadyRunning(
                f"Penstock already runs on {self.root}" + (f" (process {holder})." if holder else "."),
                f"Stop it with `{down_command(self.root)}`, or choose another --state-dir.",
            ) from None
        stream.seek(0)
        stream.truncate()
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        return stream

    def holder(self) -> int | None:
        """The process id of the supervisor that holds the directory, or None when nobody does."""
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

    def port(self, name: str) -> int:
        """The loopback port of an internal service: the one it had last time when that is free."""
        known = self._read(PORTS_FILE)
        port = free_port(known.get(name))
        if known.get(name) != port:
            self._write(PORTS_FILE, known | {name: port})
        return port

    def settled_port_base(self, wanted: int) -> int:
        """The first tenant port of this state directory: what its first start was given, for addresses stay."""
        known = self._read(SHAPE_FILE)
        if "port_base" not in known:
            self._write(SHAPE_FILE, {"port_base": wanted})
        return int(known.get("port_base", wanted))

    def write_addresses(self, addresses: dict[str, str]) -> None:
        """Tell other commands run on this state directory where the services are (`config.environment`)."""
        self._write(SERVICES_FILE, addresses)

    def remember(self, run: str, pids: dict[str, int]) -> None:
        """Note a run and its children, so that the warden or the next start finds what a killed supervisor left."""
        children = {}
        for name, pid in pids.items():
            try:
                children[name] = [pid, psutil.Process(pid).create_time()]
            except psutil.NoSuchProcess:
                continue
        self._write(RUN_FILE, {"run": run, "children": children})

    def family(self) -> Family:
        """The processes of the run that was noted last."""
        noted = self._read(RUN_FILE)
        children = tuple((int(pid), float(started)) for pid, started in noted.get("children", {}).values())
        return Family(str(noted.get("run", "none")), children)

    def _read(self, name: str) -> dict[str, Any]:
        file = self.root / name
        if not file.exists():
            return {}
        body: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return body

    def _write(self, name: str, body: dict[str, Any]) -> None:
        write_private_json(self.root / name, body)


def write_private_json(file: Path, body: dict[str, Any]) -> None:
    """Replace a file in one step; only its owner may read it, for it holds passwords."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(body, stream, indent=1)
    draft.rename(file)
