"""Replies and effects of decisions about transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.result import CoordinatorResult
from brokers.engine.coordinators.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID
from brokers.engine.protocol.errors import ErrorCode

# No coordinator answered, or its answer has no epoch.
NO_COORDINATOR: Final = -1


class InitProducerIdReply(NamedTuple):
    """Reply to InitProducerId. After NEEDS_PRODUCER_ID the caller repeats the call with an unused producer id."""

    error: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


# Its `error` is no code of the protocol: the caller allocates a producer id, for which it may have to ask ZooKeeper.
NEEDS_PRODUCER_ID: Final = InitProducerIdReply(1 << 15)


class DescribedTransaction(NamedTuple):
    """Description of one transactional id for DescribeTransactions.

    `partitions` are those of the open transaction or, while markers are being written, those that still lack one.
    """

    error: int
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: Sequence[PartitionKey] = ()


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class VerificationReply(NamedTuple):
    """Result of a verification: an error code for each partition, 0 if it is in the open transaction.

    A partition that has a marker of a later coordinator than `coordinator_epoch` must ignore it.
    """

    codes: Mapping[PartitionKey, int]
    coordinator_epoch: int = NO_COORDINATOR


class SendMarkers(NamedTuple):
    """Effect of a decided transaction: a marker is written to each of `partitions` (TXN-12).

    The sender reports back with `TransactionMachine.record_written_markers`, also if there are no partitions.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: frozenset[PartitionKey]


_UNAVAILABLE_ERRORS: Final = frozenset(
    {
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.NOT_ENOUGH_REPLICAS),
        int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        int(ErrorCode.REQUEST_TIMED_OUT),
    }
)
_NOT_LEADER_ERRORS: Final = frozenset({int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.KAFKA_STORAGE_ERROR)})
_TOO_LARGE_ERRORS: Final = frozenset({int(ErrorCode.MESSAGE_TOO_LARGE), int(ErrorCode.RECORD_LIST_TOO_LARGE)})


def fatal_refusal(reply: Any) -> CoordinatorResult:
    """Makes the decision for a refusal that makes a producer give up.

    It is released only after a check that this broker was still the coordinator: a deposed one may not know the
    producer or its epoch (decision 76).
    """
    return CoordinatorResult(reply, is_read=True)


def coordinator_error(append_error: int) -> int:
    """Returns the error code for a client whose transaction record failed to be appended or committed."""
    if append_error in _UNAVAILABLE_ERRORS:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if append_error in _NOT_LEADER_ERRORS:
        return int(ErrorCode.NOT_COORDINATOR)
    if append_error in _TOO_LARGE_ERRORS:
        return int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return append_error
