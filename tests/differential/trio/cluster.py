"""Three brokers by role, with what scripts do to them: pause, resume, stop, start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.differential.play import Address, Player
from tests.testkit.engine import eventually

ROLES = ("A", "B", "C")


class Trio(ABC):
    """Three brokers. `ids` are broker ids by role. `prefix` precedes a tenant's topic names in the operator's view."""

    ids: dict[str, int]
    prefix = ""

    @abstractmethod
    def tenant(self, role: str) -> Address:
        """Where a tenant reaches the broker."""

    @abstractmethod
    def operator(self, role: str) -> tuple[Address, tuple[str, str] | None]:
        """Where the operator reaches it, and with which user and secret."""

    @abstractmethod
    def pid(self, role: str) -> int: ...

    @abstractmethod
    def stop(self, role: str) -> None:
        """A clean stop; returns when the process has ended."""

    @abstractmethod
    def start(self, role: str) -> None:
        """Starts it again; returns when it answers."""

    @contextmanager
    def paused(self, role: str) -> Iterator[None]:
        os.kill(self.pid(role), signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid(role), signal.SIGCONT)

    @contextmanager
    def stopped(self, role: str) -> Iterator[None]:
        self.stop(role)
        try:
            yield
        finally:
            self.start(role)


def rack_of(broker_id: int) -> str:
    """Each broker is in a rack of its own, named as `apache_kafka.py` names it."""
    return f"RACK{broker_id}"


def roles_by(controller: int, ids: list[int]) -> dict[str, int]:
    return dict(zip(ROLES, [controller, *sorted(set(ids) - {controller})], strict=True))


class ApacheTrio(Trio):
    """The brokers that `apache_kafka.py up --brokers 3` started, by its `state.json`."""

    def __init__(self, state_file: Path) -> None:
        state = json.loads(state_file.read_text())
        self._folder = state_file.parent
        self._addresses: dict[int, Address] = {}
        self._pids: dict[int, int] = {}
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        for id, (bootstrap, pid) in enumerate(zip(state["bootstrap"].split(","), state["broker_pids"], strict=True), 1):
            host, _, port = bootstrap.rpartition(":")
            self._addresses[id] = Address(host, int(port))
            self._pids[id] = pid
        self._commands = {
            id: Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0") for id, pid in self._pids.items()
        }
        with Player(self._addresses[1]) as player:
            controller = player.call(ApiKey.METADATA, 1, MetadataRequest(topics=[])).controller_id
        self.ids = roles_by(controller, list(self._addresses))

    def tenant(self, role: str) -> Address:
        return self._addresses[self.ids[role]]

    def operator(self, role: str) -> tuple[Address, tuple[str, str] | None]:
        return self.tenant(role), None

    def pid(self, role: str) -> int:
        return self._pids[self.ids[role]]

    def stop(self, role: str) -> None:
        pid = self.pid(role)
        os.kill(pid, signal.SIGTERM)
        started = self._started.get(self.ids[role])

        def ended() -> bool:
            if started is not None:
                return started.poll() is not None
            return not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]

        eventually(ended, f"broker {self.ids[role]} has stopped")

    def start(self, role: str) -> None:
        id = self.ids[role]
        with (self._folder / f"broker{id}.log").open("ab") as log:
            process = subprocess.Popen(
                self._commands[id], stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=self._folder
            )
        self._started[id], self._pids[id] = process, process.pid
        state = json.loads((self._folder / "state.json").read_text())
        state["broker_pids"] = [self._pids[id] for id in sorted(self._pids)]
        (self._folder / "state.json").write_text(json.dumps(state))
        address = self._addresses[id]

        def answers() -> bool:
            try:
                socket.create_connection((address.host, address.port), 0.5).close()
            except OSError:
                return False
            return True

        eventually(answers, f"broker {id} listens")
