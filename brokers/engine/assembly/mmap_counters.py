"""Usage counters in memory-mapped files that outlive the process: the next process reports what a killed one counted.

Each process has two files in its first log directory. `usage.<n>.counters` is mapped into memory, so that counting
needs no system call; `usage.<n>.keys` has a line for each counter, in their order, written before the counter is first
used. Both are deleted when all usage is reported, or renamed if an entry is invalid. A power failure may lose what the
kernel had not written back, as it may lose the counted messages.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from brokers.contract.usage import USAGE_INTERVAL_MS, UsageEvent
from brokers.engine.throttling.usage import BYTES, NUMBERS, REPORTED, REQUESTS, Key, allocate_in_memory

log = structlog.get_logger(__name__)

# A slot has four integers, one of them unused, so that no slot crosses a page boundary.
SLOT_INTEGERS: Final = 4
SLOT_BYTES: Final = 8 * SLOT_INTEGERS
CHUNK_SLOTS: Final = 2_048
CHUNK_BYTES: Final = CHUNK_SLOTS * SLOT_BYTES
assert CHUNK_BYTES % mmap.ALLOCATIONGRANULARITY == 0

# The first slot is a header: format number, broker epoch, sequence, time in ms.
MAGIC: Final = 0x50454E5553414745
EPOCH, SEQUENCE, AT_MS = 1, 2, 3
# Instance id, topic, user, client id and direction.
KEY_FIELDS: Final = 5
NO_EPOCH: Final = -1

# Suffix of files that are kept for an operator because an entry is invalid.
UNREADABLE: Final = ".unreadable"
_NAME = re.compile(r"^usage\.(\d+)\.(counters|keys)$")


class MmapCounters:
    """Counters of this process. Counters created before `open`, or after a failure of the disk, are in ordinary memory
    and lost with the process.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._counters_fd = -1
        self._keys_fd = -1
        self._head = header_in_memory()
        self._chunk = memoryview(b"")
        self._used = CHUNK_SLOTS
        self._chunks = 0
        self._paths: tuple[Path, ...] = ()

    def open(self, now_ms: int) -> list[UnreportedUsage]:
        """Creates this process's files, and returns those of earlier processes. The directory must be locked."""
        unreported: list[UnreportedUsage] = []
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            unreported = list(_unreported_in(self._directory))
            number = 1 + max((files.number for files in unreported), default=0)
            counters, keys = (self._directory / f"usage.{number}.{kind}" for kind in ("counters", "keys"))
            self._counters_fd = os.open(counters, flags, 0o600)
            self._keys_fd = os.open(keys, flags | os.O_APPEND, 0o600)
            self._grow()
        except OSError as error:
            self._give_up(error)
            return unreported
        self._paths = (counters, keys)
        self._head = self._take()
        self._head[0], self._head[EPOCH], self._head[AT_MS] = MAGIC, NO_EPOCH, now_ms
        return unreported

    def allocate_numbers(self, instance_id: str, key: Key) -> memoryview:
        """Returns the memory for the numbers of one counter."""
        if self._keys_fd < 0:
            return allocate_in_memory(key)
        try:
            if self._used == CHUNK_SLOTS:
                self._grow()
            _write_whole(self._keys_fd, json.dumps([instance_id, *key]).encode() + b"\n")
        except OSError as error:
            self._give_up(error)
            return allocate_in_memory(key)
        return self._take()[:NUMBERS]

    def store_broker_epoch(self, broker_epoch: int) -> None:
        """Stores the broker epoch of this process, under which unreported usage will be reported."""
        self._head[EPOCH] = broker_epoch

    def store_last_report(self, sequence: int, at_ms: int) -> None:
        """Stores the sequence and the wall time of the last complete report."""
        self._head[SEQUENCE], self._head[AT_MS] = sequence, at_ms

    def discard(self) -> None:
        """Deletes the files when everything is reported and nothing more will be counted."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _take(self) -> memoryview:
        start = self._used * SLOT_INTEGERS
        self._used += 1
        return self._chunk[start : start + SLOT_INTEGERS]

    def _grow(self) -> None:
        start = self._chunks * CHUNK_BYTES
        # Writing to a page without space on the disk would end the process.
        os.posix_fallocate(self._counters_fd, start, CHUNK_BYTES)
        pages = mmap.mmap(self._counters_fd, CHUNK_BYTES, offset=start)
        _pin(pages)
        self._chunk = memoryview(pages).cast("q")
        self._chunks += 1
        self._used = 0

    def _give_up(self, error: OSError) -> None:
        """Closes the files after an error; new counters are lost if the process is killed before its next report."""
        log.warning("usage_not_kept", directory=str(self._directory), reason=error.strerror)
        for fd in (self._counters_fd, self._keys_fd):
            if fd >= 0:
                os.close(fd)
        self._counters_fd = self._keys_fd = -1


class UnreportedUsage(NamedTuple):
    """Files of an ended process that may have unreported usage."""

    number: int
    counters: Path
    keys: Path

    def events(self, broker_id: int, now_ms: int) -> Iterator[UsageEvent]:
        """Yields the unreported usage. Raises OSError, and ValueError at the first invalid entry."""
        try:
            raw = self.counters.read_bytes()
        except FileNotFoundError:
            return  # a process ended while it deleted both
        numbers = memoryview(raw[: len(raw) // SLOT_BYTES * SLOT_BYTES]).cast("q")
        if not numbers or not numbers[0]:
            return  # the disk had no space for it, or the process ended before it began
        if numbers[0] != MAGIC:
            raise ValueError("these are no counters")
        if numbers[EPOCH] == NO_EPOCH:
            return  # it never joined the cluster, so it had no clients
        at_ms = min(now_ms, numbers[AT_MS] + USAGE_INTERVAL_MS)
        # The last line may be truncated; its counter was not used yet.
        lines = self.keys.read_bytes().split(b"\n")[:-1]
        for slot, line in enumerate(lines, start=1):
            counter = numbers[slot * SLOT_INTEGERS : (slot + 1) * SLOT_INTEGERS]
            if len(counter) < SLOT_INTEGERS or counter[REQUESTS] <= counter[REPORTED]:
                continue
            fields = json.loads(line)
            if not isinstance(fields, list) or [type(field) for field in fields] != [str] * KEY_FIELDS:
                raise ValueError(f"line {slot} is no key of a counter")
            instance_id, topic, user, client_id, direction = fields
            yield UsageEvent(
                broker_id=broker_id,
                broker_epoch=numbers[EPOCH],
                sequence=numbers[SEQUENCE] + 1,
                at_ms=at_ms,
                instance_id=instance_id,
                topic=topic,
                user=user,
                client_id=client_id,
                direction=direction,
                bytes=counter[BYTES],
                requests=counter[REQUESTS],
            )

    def discard(self) -> None:
        self.counters.unlink(missing_ok=True)
        self.keys.unlink(missing_ok=True)

    def set_aside(self) -> None:
        """Renames the files, so that no later process reports what they have again. Raises OSError."""
        for file in (self.keys, self.counters):
            file.replace(file.with_name(file.name + UNREADABLE))


def _pin(pages: mmap.mmap) -> None:
    """Locks the pages in memory: reading them again from a failed disk would end the process."""
    library = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if library.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(pages))):
        log.info("usage_pages_not_pinned", reason=os.strerror(ctypes.get_errno()))


def header_in_memory() -> memoryview:
    """Returns a header in ordinary memory, which is lost with the process."""
    return memoryview(bytearray(SLOT_BYTES)).cast("q")


def _unreported_in(directory: Path) -> Iterator[UnreportedUsage]:
    numbers = {int(result[1]) for file in directory.iterdir() if (result := _NAME.match(file.name))}
    for number in sorted(numbers):
        yield UnreportedUsage(number, directory / f"usage.{number}.counters", directory / f"usage.{number}.keys")


def _write_whole(fd: int, data: bytes) -> None:
    if os.write(fd, data) != len(data):
        raise OSError(0, "a line was written in part")
