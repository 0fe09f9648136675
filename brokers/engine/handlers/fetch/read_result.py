"""Result of reading the partitions of a Fetch."""

from __future__ import annotations

from brokers.engine.handlers.fetch.fetch_errors import Diverging, PartitionResult
from brokers.engine.handlers.fetch.prefetch import Missing
from brokers.engine.partitions.committed import AbortedByPartition
from brokers.engine.partitions.partition import Partition
from brokers.engine.throttling.charging import Limiter
from brokers.engine.throttling.usage import UsageCounter


class FetchReadResult:
    """Result of one pass over the partitions of a request.

    `missing` are partitions with records that are not in the page cache, if the pass did not wait for the disk; the
    rest of the result is then discarded.
    """

    __slots__ = (
        "aborted", "answers", "diverging", "limited", "metered", "missing", "must_answer", "readable_bytes", "slices",
        "watched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.aborted: AbortedByPartition = {}
        self.answers: list[tuple[bytes, list[PartitionResult]]] = []
        self.missing: list[Missing] = []
        self.diverging: Diverging = {}
        self.metered: list[tuple[UsageCounter | None, int]] = []
        # Bytes read from topics that have a byte limit.
        self.limited: list[tuple[Limiter, int]] = []
        self.readable_bytes = 0
        # Number of partitions that got records in `extend`.
        self.slices = 0
        self.watched: list[Partition] = []
        self.must_answer = False

    def add_topic(
        self,
        key: bytes,
        results: list[PartitionResult],
        topic_bytes: int,
        usage: UsageCounter | None,
        limiter: Limiter | None,
    ) -> None:
        """Appends a topic of the response, with the results of its partitions."""
        self.answers.append((key, results))
        if topic_bytes:
            self.readable_bytes += topic_bytes
            self.metered.append((usage, topic_bytes))
            if limiter is not None:
                self.limited.append((limiter, topic_bytes))

    def extend(self, later: FetchReadResult, goes_on: bool) -> None:
        """Appends a later result. With `goes_on`, its first topic continues the last topic of this result."""
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
        self.limited += later.limited
        self.readable_bytes += later.readable_bytes
        self.slices += sum(1 for _, results in later.answers for result in results if result[6] is not None)
        self.watched += later.watched
        self.must_answer = self.must_answer or later.must_answer

    def release(self) -> None:
        """Closes the file slices of the result."""
        for _, results in self.answers:
            for result in results:
                if result[6] is not None:
                    result[6].release()
