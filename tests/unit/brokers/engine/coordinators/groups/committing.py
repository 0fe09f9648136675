"""Helpers for tests of offsets: requests to a shard, with unwrapped replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brokers.engine.coordinators.groups.offsets import Commit, FetchedOffset, Producer
from brokers.engine.coordinators.result import NO_VERIFICATION_TOKEN, StateRecord
from brokers.engine.records.builder import Record, build_batch
from tests.unit.brokers.engine.coordinators.fakes import Call
from tests.unit.brokers.engine.coordinators.groups.members import GROUP, Member, Shard

TOPIC, OTHER = "ins-aaaaaaaa.orders", "ins-aaaaaaaa.others"
PRODUCER = Producer(7, 0)


def commit(
    shard: Shard,
    *commits: Commit,
    group: str = GROUP,
    member: Member | None = None,
    generation: int | None = None,
    member_id: str | None = None,
    instance: str | None = None,
    retention_ms: int = -1,
) -> Call:
    """Commit offsets as `member`, or as a client outside the group if None."""
    commit_generation = (-1 if member is None else member.generation) if generation is None else generation
    who = ("" if member is None else member.id) if member_id is None else member_id
    return shard.ask(
        lambda machine, now, _: machine.offsets.commit(
            now, group, commit_generation, who, instance, commits, retention_ms
        ),
        group,
    )


def put(shard: Shard, partition: int, offset: int, topic: str = TOPIC, group: str = GROUP, **more: Any) -> None:
    assert commit(shard, Commit(topic, partition, offset, **more), group=group).replies == [[0]]


def commit_in_transaction(
    shard: Shard,
    *commits: Commit,
    producer: Producer = PRODUCER,
    group: str = GROUP,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
) -> Call:
    return shard.ask(
        lambda machine, now, _: machine.offsets.commit_in_transaction(
            now, group, generation, member_id, instance, commits, producer
        ),
        group,
    )


def end_transaction(shard: Shard, *, committed: bool, producer: Producer = PRODUCER) -> None:
    offset = shard.log.mark(producer.id, committed)
    shard.log.replicate()
    shard.runtime.on_marker_appended(0, producer.id, committed, offset)


class _Read:
    """A call whose replies are unwrapped to `[(topic, [FetchedOffset])]`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def replies(self) -> list[Any]:
        return [
            [(topic, list(positions)) for topic, positions in reply] if isinstance(reply, list) else reply
            for reply in self._call.replies
        ]


def fetch(
    shard: Shard,
    wanted: Sequence[tuple[str, Sequence[int]]] | None = None,
    *,
    group: str = GROUP,
    require_stable: bool = False,
) -> _Read:
    """Fetch offsets; replies are `[(topic, [FetchedOffset])]`."""
    call = shard.ask(lambda machine, now, _: machine.offsets.fetch(group, wanted, require_stable=require_stable), group)
    return _Read(call)


def fetched(shard: Shard, partition: int = 0, topic: str = TOPIC, **more: Any) -> FetchedOffset:
    (reply,) = fetch(shard, [(topic, [partition])], **more).replies
    ((_, (position,)),) = reply
    assert isinstance(position, FetchedOffset)
    return position


def offset_of(shard: Shard, partition: int = 0, topic: str = TOPIC, **more: Any) -> int:
    return fetched(shard, partition, topic, **more).offset


def everything(shard: Shard, group: str = GROUP) -> dict[tuple[str, int], int]:
    (reply,) = fetch(shard, group=group).replies
    return {(topic, position.partition): position.offset for topic, positions in reply for position in positions}


def delete_group(shard: Shard, group: str = GROUP) -> Call:
    return shard.ask(lambda machine, now, ticket: machine.removals.delete_group(now, group, ticket), group)


def delete_offsets(shard: Shard, *keys: tuple[str, int], group: str = GROUP) -> Call:
    return shard.ask(lambda machine, now, ticket: machine.removals.delete_offsets(now, group, keys, ticket), group)


def exists(shard: Shard, group: str = GROUP) -> bool:
    return shard.machine.groups.get(group) is not None


def append(shard: Shard, *records: StateRecord) -> None:
    """Append records to the log past the state machine, as an earlier broker would have; only a reload finds them."""
    batch = build_batch([Record(0, record.key, record.value) for record in records])
    shard.log.append(batch, shard.loop.now(), NO_VERIFICATION_TOKEN)
    shard.log.replicate()
