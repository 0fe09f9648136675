"""Results for the partitions of a group request: those rejected at once, and those passed to the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from brokers.engine.handlers.context import Call
from brokers.engine.protocol.errors import ErrorCode

ResultT = TypeVar("ResultT", bound="PartitionResult")
WantedT = TypeVar("WantedT", bound="WantedPartition")


class PartitionResult(Protocol):
    """Result of one partition in a response."""

    error_code: int


class WantedPartition(Protocol):
    """A partition in a request."""

    partition_index: int


class PartitionResults(Generic[ResultT, WantedT]):
    """Results of a request. `by_topic` has a result for each partition, under the client's topic names. `allowed` are
    the partitions for the coordinator: internal topic, requested partition, and its result.
    """

    __slots__ = ("allowed", "by_topic")

    def __init__(self, call: Call, topics: Sequence[Any], make: Callable[[int, int], ResultT]) -> None:
        self.by_topic: list[tuple[str, list[ResultT]]] = []
        self.allowed: list[tuple[str, WantedT, ResultT]] = []
        view = call.view
        for wanted in topics:
            topic = view.namespace.topics.get(wanted.name.encode())
            error = call.refusal(topic, wanted.name)
            lines = []
            for partition in wanted.partitions:
                line = make(partition.partition_index, error)
                lines.append(line)
                if error or topic is None:
                    continue
                if 0 <= partition.partition_index < len(topic.partitions):
                    self.allowed.append((topic.name, partition, line))
                else:
                    line.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.by_topic.append((wanted.name, lines))

    def complete(self, codes: Sequence[int]) -> None:
        """Sets the error codes of the allowed partitions, in their order."""
        for (_, _, result), code in zip(self.allowed, codes, strict=True):
            result.error_code = code

    def fail_all(self, code: int) -> None:
        """Sets one error code for all partitions, also for those of unknown topics."""
        for _, lines in self.by_topic:
            for result in lines:
                result.error_code = code

    def fail(self, code: int) -> None:
        for _, _, line in self.allowed:
            line.error_code = code
