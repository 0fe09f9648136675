"""A group of member processes for tests: started, killed, stopped for a while, and judged by their diaries."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.member import SESSION_MS
from tests.interop.positions import TAKEN, Findings, Line, examine, parse, stopped_in_vain
from tests.testkit.engine import ROOT
from tests.testkit.waiting import eventually

STOP_TIMEOUT_S = 30.0


class _Diary:
    """A diary that is still being written: what was read of it once is not read again."""

    def __init__(self, file: Path) -> None:
        self._file, self._at_bytes = file, 0
        self._lines: list[Line] = []

    def lines(self) -> list[Line]:
        if self._file.exists():
            with self._file.open("rb") as diary:
                diary.seek(self._at_bytes)
                more = diary.read()
            whole = more[: more.rfind(b"\n") + 1]
            self._at_bytes += len(whole)
            self._lines += parse(whole.decode())
        return self._lines


class Group:
    """Members of one group on one topic. A context manager: no process outlives it."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        topic: str,
        partitions: int,
        directory: Path,
        strategy: str = "range",
        session_ms: int = SESSION_MS,
    ) -> None:
        self.bootstrap, self.name, self.topic, self.partitions = bootstrap, name, topic, partitions
        self.strategy, self.session_ms = strategy, session_ms
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._diaries: dict[str, _Diary] = {}

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    @property
    def alive(self) -> list[str]:
        return [member for member, process in self._processes.items() if process.poll() is None]

    def add(self, client: str, *, instance: str = "") -> str:
        """Starts a member; its name."""
        member = f"{client}-{len(self._processes)}"
        command = [sys.executable, "-m", "tests.interop.member", "--client", client, "--bootstrap", self.bootstrap]
        command += ["--group", self.name, "--topic", self.topic, "--diary", str(self._diary(member))]
        command += ["--strategy", self.strategy, "--instance", instance, "--session-ms", str(self.session_ms)]
        with (self._directory / f"{member}.log").open("wb") as log:
            self._processes[member] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        return member

    def kill(self, member: str) -> None:
        self._processes[member].kill()
        self._processes[member].wait()

    def pause(self, member: str) -> None:
        self._processes[member].send_signal(signal.SIGSTOP)

    def resume(self, member: str) -> None:
        self._processes[member].send_signal(signal.SIGCONT)

    def leave(self, member: str) -> int:
        """Stops a member in the way of a user; returns its exit code."""
        self._processes[member].terminate()
        return self._processes[member].wait(STOP_TIMEOUT_S)

    def lines(self, member: str) -> list[Line]:
        """Returns the lines that the member has written so far; do not change them."""
        return self._diaries.setdefault(member, _Diary(self._diary(member))).lines()

    def log(self, member: str) -> str:
        return (self._directory / f"{member}.log").read_text()

    def holds(self, member: str) -> set[int]:
        """The partitions that the member has."""
        held: set[int] = set()
        for line in self.lines(member):
            if line.kind == "assigned":
                held.add(line.partition)
            elif line.kind in TAKEN:
                held.discard(line.partition)
        return held

    def revoked(self, members: Iterable[str] | None = None) -> list[int]:
        """The partitions that these members, all by default, had to stop, in order."""
        among = self._processes if members is None else members
        lines = sorted(line for member in among for line in self.lines(member) if line.kind == "revoked")
        return [line.partition for line in lines]

    def stopped_in_vain(self) -> list[str]:
        return stopped_in_vain({member: self.lines(member) for member in self._processes})

    def until_shared_by(self, members: Iterable[str], within_s: float = 60.0) -> None:
        """Waits until these members, and each with something, have all partitions."""
        wanted = list(members)

        def shared() -> bool:
            for member in set(wanted) - set(self.alive):
                pytest.fail(f"{member} ended: {self.log(member)}")
            parts = [self.holds(member) for member in wanted]
            return all(parts) and sorted(p for part in parts for p in part) == list(range(self.partitions))

        eventually(shared, within_s=within_s, what=f"{wanted} to share {self.partitions} partitions")

    def read_of(self, partition: int) -> set[int]:
        return {
            line.offset
            for member in self._processes
            for line in self.lines(member)
            if line.kind == "read" and line.partition == partition
        }

    def until_all_read(self, ends: dict[int, int], within_s: float = 90.0) -> None:
        eventually(
            lambda: all(len(self.read_of(partition)) >= end for partition, end in ends.items()),
            within_s=within_s,
            what="every record to be read",
        )

    def findings(self, ends: dict[int, int]) -> Findings:
        return examine({member: self.lines(member) for member in self._processes}, ends)

    def _diary(self, member: str) -> Path:
        return self._directory / f"{member}.diary"


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Returns the committed offsets of the group; -1001 where there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        places = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], timeout=30)
        return {place.partition: place.offset for place in places}
    finally:
        consumer.close()


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    try:
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1]
            for index in range(partitions)
        }
    finally:
        consumer.close()
