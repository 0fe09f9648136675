"""What a fetch has read so far."""

from __future__ import annotations

from brokers.engine.handlers.fetch.fetch_errors import Diverging, PartitionResult
from brokers.engine.handlers.fetch.prefetch import Missing
from brokers.engine.partitions.committed import AbortedByPartition
from brokers.engine.partitions.partition import Partition
from brokers.engine.throttling.usage import UsageCounter


class Reading:
    """One pass over the partitions of a request.

    What is `missing` has to come from the disk, which this pass was not to wait for; then the rest is of no use.
    """

    __slots__ = (
        "aborted", "answers", "diverging", "metered", "missing", "must_answer", "readable_bytes", "slices", "watched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.aborted: AbortedByPartition = {}
        self.answers: list[tuple[bytes, list[PartitionResult]]] = []
        self.missing: list[Missing] = []
        self.diverging: Diverging = {}
        self.metered: list[tuple[UsageCounter | None, int]] = []
        self.readable_bytes = 0
        # Of so many partitions there are records, in what it was extended with.
        self.slices = 0
        self.watched: list[Partition] = []
        self.must_answer = False

    def extend(self, later: Reading, goes_on: bool) -> None:
        """With what was read after it; `goes_on`: the first topic of that is the last one of this."""
        answers = later.answers
        if goes_on:
            self.answers[-1][1].extend(answers[0][1])
            answers = answers[1:]
        self.answers += answers
        for key, entries in later.aborted.items():
            self.aborted[key] = entries
        self.missing += later.missing
        self.diverging.update(later.diverging)
        self.metered += later.metered
        self.readable_bytes += later.readable_bytes
        self.slices += sum(1 for _, lines in later.answers for line in lines if line[6] is not None)
        self.watched += later.watched
        self.must_answer = self.must_answer or later.must_answer

    def release(self) -> None:
        for _, lines in self.answers:
            for line in lines:
                if line[6] is not None:
                    line[6].release()
