"""Plan of a purge: which records of a topic go, partition by partition, before any of them does. Pure.

A record is purged when its offset is below the partition's new first offset, as in Kafka's DeleteRecords.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.utils.translation import gettext_noop

from tenants.errors import Conflict, FieldError, Invalid, Message

CLEANUP_POLICY = "cleanup.policy"
COMPACT = "compact"
# Kafka's own name for "all that is acknowledged by now".
UP_TO_END = -1
NO_MESSAGE_AS_YOUNG = -1
# One answer names at most so many wrong offsets.
ERRORS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeTarget:
    """Where a purge ends: `offsets` by partition (`UP_TO_END`: all), or an instant for all partitions; neither: all of
    all partitions.
    """

    offsets: Mapping[int, int] | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Offsets of one partition: first kept, next to be written, and the first as young as the instant asked for (-1:
    every message is older; None: no instant was asked for).
    """

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeLine:
    """Effect of a purge on one partition. `first_offset` is the first one left."""

    partition: int
    start: int
    end: int
    first_offset: int

    @property
    def messages(self) -> int:
        """Offsets that go: transactions and compaction leave gaps, so it is the most that messages can be."""
        return max(0, self.first_offset - self.start)


def plan(target: PurgeTarget, bounds: Mapping[int, Bounds]) -> tuple[PurgeLine, ...]:
    """A line for each partition of `bounds` that the target names, in order.

    Raises `Invalid` for an offset past the end of its partition.
    """
    wanted = sorted(bounds if target.offsets is None else target.offsets)
    past = [index for index in wanted if _first_offset(target, index, bounds[index]) > bounds[index].end]
    if past:
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
                for index in past[:ERRORS_SHOWN_MAX]
            ],
        )
    return tuple(
        PurgeLine(
            partition=index,
            start=bounds[index].start,
            end=bounds[index].end,
            first_offset=max(bounds[index].start, _first_offset(target, index, bounds[index])),
        )
        for index in wanted
    )


def require_deletable(config: Mapping[str, str | None]) -> None:
    """Raises `Conflict(policy_violation)` for a topic that is only compacted: Kafka deletes no records of it."""
    policies = {policy.strip() for policy in (config.get(CLEANUP_POLICY) or "").split(",")}
    if policies == {COMPACT}:
        raise policy_violation()


def policy_violation() -> Conflict:
    """Refusal of a purge of a topic that is only compacted."""
    return Conflict(
        Message(
            gettext_noop(
                "The topic is compacted (cleanup.policy=compact), so that the last message of each key stays: Kafka "
                "deletes no records of it. Add delete to its cleanup.policy first."
            )
        ),
        code="policy_violation",
    )


def partitions_missing(target: PurgeTarget, present: Iterable[int]) -> list[int]:
    """Partitions that the target names and the topic does not have."""
    return sorted(set(target.offsets or ()) - set(present))


def _first_offset(target: PurgeTarget, index: int, bounds: Bounds) -> int:
    if target.offsets is not None:
        wanted = target.offsets[index]
        return bounds.end if wanted == UP_TO_END else wanted
    if target.at_ms is None or bounds.at_time == NO_MESSAGE_AS_YOUNG:
        return bounds.end
    assert bounds.at_time is not None
    return bounds.at_time
