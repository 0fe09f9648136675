"""What decisions about transactions answer, and what they want done when they are committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.result import CoordinatorResult
from brokers.engine.coordinators.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID
from brokers.engine.protocol.errors import ErrorCode

# Nobody answered, or somebody who does not say.
NO_COORDINATOR: Final = -1


class Initialised(NamedTuple):
    """The answer to InitProducerId. With NEEDS_PRODUCER_ID: ask again and bring a producer id nobody has."""

    error: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


# No error of the protocol: the caller has the ids, and may have to ask ZooKeeper for them.
NEEDS_PRODUCER_ID: Final = Initialised(1 << 15)


class Description(NamedTuple):
    """One transactional id, for people. `partitions` are those that are still part of the transaction."""

    error: int
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: Sequence[PartitionKey] = ()


class Listed(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class Verified(NamedTuple):
    """Whether partitions are part of an open transaction: an error code for each. Who knows of a marker of a later
    coordinator must not believe that they are.
    """

    codes: Mapping[PartitionKey, int]
    coordinator_epoch: int = NO_COORDINATOR


class SendMarkers(NamedTuple):
    """The effect of a decided transaction: each of `partitions` gets a marker (TXN-12). Who does it reports back by
    `TransactionMachine.markers_written`, also when there is no partition.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: frozenset[PartitionKey]


_RETRY_HERE: Final = frozenset(
    {
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.NOT_ENOUGH_REPLICAS),
        int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        int(ErrorCode.REQUEST_TIMED_OUT),
    }
)
_LOOK_ELSEWHERE: Final = frozenset({int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.KAFKA_STORAGE_ERROR)})
_TOO_LARGE: Final = frozenset({int(ErrorCode.MESSAGE_TOO_LARGE), int(ErrorCode.RECORD_LIST_TOO_LARGE)})


def final(reply: Any) -> CoordinatorResult:
    """A refusal for which a producer gives up for good. It leaves when it is known that nobody else coordinated when it
    was made: who was deposed may not know of the producer, or of its epoch (decision 76).
    """
    return CoordinatorResult(reply, is_read=True)


def coordinator_error(append_error: int) -> int:
    """What a client is told when the record of its transaction could not be appended or committed with this error."""
    if append_error in _RETRY_HERE:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if append_error in _LOOK_ELSEWHERE:
        return int(ErrorCode.NOT_COORDINATOR)
    if append_error in _TOO_LARGE:
        return int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return append_error
