"""Jobs and events of cleaning runs, as JSON lines between the broker and its cleaner process, and totals of runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class CleaningFailed(Exception):
    """A run cannot continue: `file` at byte `position` is damaged or has a format that is not rewritten (CMP-15)."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file} at byte {position}: {reason}")
        self.file = file
        self.position = position


class Job(NamedTuple):
    """A cleaning job for one log, from its start to its first uncleanable offset.

    `segments` are (base offset, bytes) of the closed segments below `end_offset`, in order. `producers` maps a live
    producer to (offset of its last data batch, or -1 if it wrote none; its epoch). `ahead` are the segments from
    `end_offset` on, in which only transaction markers below `committed_offset`, the high watermark, are read.
    """

    directory: str
    segments: list[tuple[int, int]]
    ahead: list[tuple[int, int]]
    first_dirty: int
    end_offset: int
    committed_offset: int
    producers: dict[int, tuple[int, int]]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    load_factor: float
    buffer_bytes: int
    io_bytes_per_s: float

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "producers": [[key, *value] for key, value in self.producers.items()]})


class Cleaned(NamedTuple):
    """Event of a finished group: the `.cleaned` files of `base_offset`, `size_bytes` long, replace the segments
    `sources` (bases).
    """

    base_offset: int
    sources: list[int]
    size_bytes: int
    bytes_before: int
    max_timestamp: int
    max_timestamp_offset: int


class Finished(NamedTuple):
    """Event at the end of a run; `end_offset` is the end of the cleaned part of the log after the run."""

    end_offset: int
    bytes_before: int
    bytes_after: int
    records_kept: int
    records_dropped: int
    records_keyless: int
    keys: int
    io_bytes: int
    waited_s: float
    cpu_s: float


class Fault(StrEnum):
    """Reason why a run failed, which decides how the log is treated."""

    LOG = "log"
    """A batch is damaged or cannot be rewritten: another run would fail too (CMP-15)."""
    DISK = "disk"
    """An I/O error that takes the directory offline, as in the rest of the storage (LOG-3)."""
    TRANSIENT = "passing"
    """A shortage of disk space or memory, a file that was removed, or a killed process: the run is repeated."""


class Failed(NamedTuple):
    """Event of a failed run; the log is unchanged. `errno` is set for disk errors."""

    reason: str
    fault: Fault
    errno: int = 0


Event = Cleaned | Finished | Failed

_KINDS: dict[str, type[Cleaned] | type[Finished] | type[Failed]] = {
    "cleaned": Cleaned,
    "finished": Finished,
    "failed": Failed,
}


def parse_job(text: str | bytes) -> Job:
    fields: dict[str, Any] = json.loads(text)
    fields["segments"] = [(base, size) for base, size in fields["segments"]]
    fields["ahead"] = [(base, size) for base, size in fields["ahead"]]
    fields["producers"] = {key: (offset, epoch) for key, offset, epoch in fields["producers"]}
    return Job(**fields)


def event_to_json(event: Event) -> str:
    return json.dumps({"event": type(event).__name__.lower(), **event._asdict()})


def parse_event(text: str | bytes) -> Event:
    """Parses an event. Raises ValueError for a line that no cleaner process writes."""
    fields = json.loads(text)
    kind = _KINDS.get(fields.pop("event", ""))
    if kind is None:
        raise ValueError("not an event of the cleaner")
    if kind is Failed:
        fields["fault"] = Fault(fields["fault"])
    return kind(**fields)


@dataclass(slots=True)
class CleanerTotals:
    """Totals of cleaning runs.

    `uncleanable` partitions are excluded because their logs are damaged (CMP-15); `waiting` ones are retried after a
    run that failed for another reason.
    """

    runs: int = 0
    failures: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    io_bytes: int = 0
    cpu_s: float = 0.0
    uncleanable: int = 0
    waiting: int = 0

    def add(self, run: Finished) -> None:
        self.runs += 1
        self.bytes_before += run.bytes_before
        self.bytes_after += run.bytes_after
        self.io_bytes += run.io_bytes
        self.cpu_s += run.cpu_s
