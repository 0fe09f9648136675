"""Errors for a client that believes in another leader or leader epoch than the broker (LOG-32, REP-15)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from brokers.engine.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.differential.batches import batch
from tests.differential.scripts.produce import produced
from tests.differential.trio.play import TrioPlayer
from tests.testkit.waiting import eventually

TOPIC = "trio.fencing"
FETCH_IDS_FROM, FETCH_LAST_EPOCH_FROM = 13, 12


def script(play: TrioPlayer) -> None:
    topic_id = play.make(TOPIC, "AB")
    first = play.name_epoch(TOPIC, "first")
    _produce(play, "A", batch(b"a", b"b", b"c"))
    play.lead(TOPIC, "BA")
    second = play.name_epoch(TOPIC, "second")
    _produce(play, "B", batch(b"d"))
    epochs = {"no epoch": -1, "the first": first, "the second": second, "one to come": second + 1, "minus two": -2}
    # B leads, A follows, C has nothing of it.
    for role in "BAC":
        for name, epoch in epochs.items():
            for version in (9, 11, 12, 13, 17):
                _fetch(play, role, version, name, epoch, topic_id)
            for version in (4, 7, 9):
                line = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
                request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[line])])
                play.at[role].ask(f"{role}: list v{version}, {name}", ApiKey.LIST_OFFSETS, version, request)
            for version in (2, 3, 4):
                asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=first)
                topics = [OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
                play.at[role].ask(
                    f"{role}: epoch v{version}, {name}",
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    version,
                    OffsetForLeaderEpochRequest(replica_id=-1, topics=topics),
                )
    for role in "AC":
        _write_elsewhere(play, role)
    _diverge(play, topic_id, first, second)


def _produce(play: TrioPlayer, role: str, records: bytes) -> None:
    """Again until it is taken: who is to lead may still be making the log."""

    def is_taken() -> bool:
        answer = play.at[role].call(ApiKey.PRODUCE, 9, produced(TOPIC, records))
        return bool(answer.responses[0].partition_responses[0].error_code == 0)

    eventually(is_taken, what="the records to be taken")


def _fetch(
    play: TrioPlayer,
    role: str,
    version: int,
    what: str,
    epoch: int,
    topic_id: bytes,
    *,
    offset: int = 3,
    last_epoch: int = -1,
) -> None:
    line = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
    )
    named = {"topic_id": topic_id} if version >= FETCH_IDS_FROM else {"topic": TOPIC}
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(**named, partitions=[line])])
    play.at[role].ask(f"{role}: fetch v{version}, {what}", ApiKey.FETCH, version, request)


def _write_elsewhere(play: TrioPlayer, role: str) -> None:
    for version in (3, 8, 9, 10, 11):
        play.at[role].ask(f"{role}: produce v{version}", ApiKey.PRODUCE, version, produced(TOPIC, batch(b"x"), acks=1))
    for version in range(3):
        gone = DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[gone])], timeout_ms=5_000)
        play.at[role].ask(f"{role}: delete v{version}", ApiKey.DELETE_RECORDS, version, request)


def _diverge(play: TrioPlayer, topic_id: bytes, first: int, second: int) -> None:
    for version in (FETCH_LAST_EPOCH_FROM, 17):
        for what, offset, last_epoch in (
            ("read the first to its end", 3, first),
            ("read more of the first than there was", 4, first),
            ("read the second to its end", 4, second),
            ("read more of the second than there is", 9, second),
            ("read an epoch to come", 4, second + 1),
        ):
            _fetch(play, "B", version, what, second, topic_id, offset=offset, last_epoch=last_epoch)
