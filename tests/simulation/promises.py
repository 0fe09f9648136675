"""Promises of a log at each time of a run: its records, and the part that must survive a kill or a power loss."""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.records.builder import Record

NEVER: Final = 1 << 62


class Written(NamedTuple):
    """A record in the batch from `first` to `last`, and the operation until which it may be present."""

    record: Record
    epoch: int
    producer_id: int
    first_sequence: int  # first sequence number of its batch, -1 for none
    first: int
    last: int
    gone_at: int = NEVER


class Promise(NamedTuple):
    """Promised offsets: a kill leaves everything below `end_after_kill`, a power loss everything below
    `end_after_power_loss`, in both cases from the possible starts of the log on.
    """

    end_after_kill: int = 0
    end_after_power_loss: int = 0
    start_min_after_kill: int = 0
    start_min_after_power_loss: int = 0
    start_max: int = 0


class Promises:
    """The model: `at(step)` returns the promise for a crash before operation `step` of the disk."""

    def __init__(self) -> None:
        self._promises_by_step: list[tuple[int, Promise]] = [(0, Promise())]
        self._written: dict[int, list[Written]] = {}
        self.end = 0

    @property
    def last(self) -> Promise:
        return self._promises_by_step[-1][1]

    def promise(self, step: int, **changes: int) -> None:
        """Changes the promise from operation `step` on."""
        self._promises_by_step.append((step, self.last._replace(**changes)))

    def at(self, step: int) -> Promise:
        return next(promise for since, promise in reversed(self._promises_by_step) if since <= step)

    def write(self, records: list[Record], epoch: int, producer_id: int, sequence: int) -> None:
        first, last = self.end, self.end + len(records) - 1
        for offset, record in enumerate(records, first):
            written = Written(record, epoch, producer_id, sequence, first, last)
            self._written.setdefault(offset, []).append(written)
        self.end = last + 1

    def truncate(self, offset: int, step: int) -> None:
        """Notes a durable truncation of the log."""
        for position in range(offset, self.end):
            self._written[position][-1] = self._written[position][-1]._replace(gone_at=step)
        self.end = offset

    def candidates(self, offset: int, step: int) -> list[Written]:
        """Returns the records that may be at an offset after a crash at `step`, the latest last."""
        return [result for result in self._written.get(offset, []) if step < result.gone_at]

    @classmethod
    def resumed(cls, present_records: list[Written], start: int, end: int) -> Promises:
        """Makes a model after a checked crash, in which the present records are durable."""
        model = cls()
        model.end = end
        for offset, record in enumerate(present_records, start):
            model._written[offset] = [record._replace(gone_at=NEVER)]
        model._promises_by_step = [(0, Promise(end, end, start, start, start))]
        return model
