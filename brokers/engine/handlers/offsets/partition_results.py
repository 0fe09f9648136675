"""The lines of a request that names partitions of a group's topics: which are refused at once, which go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from brokers.engine.handlers.context import Call
from brokers.engine.protocol.errors import ErrorCode

ResultT = TypeVar("ResultT", bound="PartitionResult")
WantedT = TypeVar("WantedT", bound="WantedPartition")


class PartitionResult(Protocol):
    """Of an answer."""

    error_code: int


class WantedPartition(Protocol):
    """Of a request."""

    partition_index: int


class PartitionResults(Generic[ResultT, WantedT]):
    """`by_topic` has an answering line for each partition, under the client's names. `allowed` are those that the
    coordinator shall see: internal topic, what is asked, the line that answers it.
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
        """What became of those that were allowed, in their order."""
        for (_, _, line), code in zip(self.allowed, codes, strict=True):
            line.error_code = code

    def fail_all(self, code: int) -> None:
        """Also what there is not."""
        for _, lines in self.by_topic:
            for line in lines:
                line.error_code = code

    def fail(self, code: int) -> None:
        for _, _, line in self.allowed:
            line.error_code = code
