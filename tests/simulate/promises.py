"""What a log has promised by each moment of a run: a list of records, and how far of it must survive which crash."""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.records.builder import Record

NEVER: Final = 1 << 62


class Written(NamedTuple):
    """A record that was appended at some offset, in the batch from `first` to `last`; when that was, and until when it
    may be found there.
    """

    record: Record
    epoch: int
    producer_id: int
    first_sequence: int  # of its batch, -1 for none
    first: int
    last: int
    since_op: int
    gone_after_kill: int = NEVER
    gone_after_power_loss: int = NEVER

    def may_be_there(self, step: int, *, power_lost: bool) -> bool:
        return step < (self.gone_after_power_loss if power_lost else self.gone_after_kill)


class Promise(NamedTuple):
    """Offsets. A kill leaves everything below `killed_end`, a power loss everything below `lost_end`; in both cases
    from wherever the log may start.
    """

    killed_end: int = 0
    lost_end: int = 0
    killed_start_least: int = 0
    lost_start_least: int = 0
    start_most: int = 0


class Promises:
    """The model: `at(step)` is what holds for a crash before operation `step` of the disk."""

    def __init__(self) -> None:
        self._held: list[tuple[int, Promise]] = [(0, Promise())]
        self._written: dict[int, list[Written]] = {}
        self.end = 0

    @property
    def last(self) -> Promise:
        return self._held[-1][1]

    def promise(self, step: int, **changes: int) -> None:
        """From operation `step` on."""
        self._held.append((step, self.last._replace(**changes)))

    def at(self, step: int) -> Promise:
        return next(promise for since, promise in reversed(self._held) if since <= step)

    def write(self, records: list[Record], epoch: int, producer_id: int, sequence: int, step: int) -> None:
        first, last = self.end, self.end + len(records) - 1
        for offset, record in enumerate(records, first):
            found = Written(record, epoch, producer_id, sequence, first, last, step)
            self._written.setdefault(offset, []).append(found)
        self.end = last + 1

    def take_back(self, offset: int, step: int) -> None:
        """The log was truncated; a power loss may bring the records back until `settle`."""
        for at in range(offset, self.end):
            self._written[at][-1] = self._written[at][-1]._replace(gone_after_kill=step)
        self.end = offset

    def settle(self, step: int) -> None:
        """All that was taken back is gone for good."""
        for versions in self._written.values():
            for number, found in enumerate(versions):
                if found.gone_after_kill < NEVER and found.gone_after_power_loss == NEVER:
                    versions[number] = found._replace(gone_after_power_loss=step)

    def candidates(self, offset: int, step: int, *, power_lost: bool) -> list[Written]:
        """What may lie at an offset after a crash at `step`, the latest last."""
        versions = self._written.get(offset, [])
        return [found for found in versions if found.may_be_there(step, power_lost=power_lost)]

    def forget_history(self, start: int, end: int) -> None:
        """After a crash that was checked: the log from `start` to `end` is the whole truth from here on."""
        for offset in [offset for offset in self._written if offset >= end]:
            del self._written[offset]
        for offset, versions in self._written.items():
            del versions[:-1]
            versions[0] = versions[0]._replace(since_op=0, gone_after_kill=NEVER, gone_after_power_loss=NEVER)
            assert offset < end
        self.end = end
        self._held = [(0, Promise(end, min(self.last.lost_end, end), start, 0, start))]
