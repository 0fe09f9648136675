"""Plan of a purge: the records of a topic that it deletes, by partition. Pure.

A record is purged if its offset is below the partition's new first offset, as in Kafka's DeleteRecords.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.utils.translation import gettext_noop

from tenants.errors import Conflict, FieldError, Invalid, Message

CLEANUP_POLICY = "cleanup.policy"
COMPACT = "compact"
# Kafka's offset for "all records acknowledged so far".
UP_TO_END = -1
NO_LATER_MESSAGE = -1
# Maximum number of wrong offsets that one response names.
ERRORS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeTarget:
    """End of a purge: `offsets` by partition (`UP_TO_END`: all of it), or an instant for all partitions; without both,
    all records.
    """

    offsets: Mapping[int, int] | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBounds:
    """Offsets of one partition: `start` is its first offset and `end` the next one to be written. `at_time` is the
    first offset that is not older than the instant of the purge; -1: all messages are older; None: the purge has
    no instant.
    """

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPurge:
    """Effect of a purge on one partition. `first_offset` is the first offset after it."""

    partition: int
    start: int
    end: int
    first_offset: int

    @property
    def messages(self) -> int:
        """Number of deleted offsets: transactions and compaction leave gaps, so it is an upper bound of messages."""
        return max(0, self.first_offset - self.start)


def plan(target: PurgeTarget, bounds: Mapping[int, PartitionBounds]) -> tuple[PartitionPurge, ...]:
    """Returns the effect on each partition that the target names (all of `bounds` without offsets), in order.

    Raises `Invalid` for an offset past the end of its partition.
    """
    selected = sorted(bounds if target.offsets is None else target.offsets)
    beyond_end = [index for index in selected if _first_offset(target, index, bounds[index]) > bounds[index].end]
    if beyond_end:
        raise Invalid(
            Message(gettext_noop("An offset lies past the end of its partition.")),
            code="offset_out_of_range",
            errors=[
                FieldError(
                    pointer=f"/before/{index}",
                    detail=Message(
                        gettext_noop("Partition %(partition)s ends at offset %(end)s."),
                        partition=index,
                        end=bounds[index].end,
                    ),
                    code="offset_out_of_range",
                )
                for index in beyond_end[:ERRORS_SHOWN_MAX]
            ],
        )
    return tuple(
        PartitionPurge(
            partition=index,
            start=bounds[index].start,
            end=bounds[index].end,
            first_offset=max(bounds[index].start, _first_offset(target, index, bounds[index])),
        )
        for index in selected
    )


def require_deletable(config: Mapping[str, str | None]) -> None:
    """Raises `Conflict(policy_violation)` for a topic that is only compacted: Kafka deletes no records of it."""
    policies = {policy.strip() for policy in (config.get(CLEANUP_POLICY) or "").split(",")}
    if policies == {COMPACT}:
        raise policy_violation()


def policy_violation() -> Conflict:
    """Returns the error for a purge of a topic that is only compacted."""
    return Conflict(
        Message(
            gettext_noop(
                "The topic is compacted (cleanup.policy=compact), so that the last message of each key stays: Kafka "
                "deletes no records of it. Add delete to its cleanup.policy first."
            )
        ),
        code="policy_violation",
    )


def missing_partitions(target: PurgeTarget, existing: Iterable[int]) -> list[int]:
    """Returns the partitions that the target names and the topic does not have."""
    return sorted(set(target.offsets or ()) - set(existing))


def _first_offset(target: PurgeTarget, index: int, bounds: PartitionBounds) -> int:
    if target.offsets is not None:
        offset = target.offsets[index]
        return bounds.end if offset == UP_TO_END else offset
    if target.at_ms is None or bounds.at_time == NO_LATER_MESSAGE:
        return bounds.end
    assert bounds.at_time is not None
    return bounds.at_time
