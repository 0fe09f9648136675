"""Produce to a topic that wants all three replicas in sync, while one does not follow (REP-12, REP-13, REP-22)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.batches import batch
from tests.differential.trio.play import TrioPlayer

TOPIC = "trio.min_isr"
ALL, LEADER = -1, 1
PATIENCE_MS = 10_000


def script(play: TrioPlayer) -> None:
    play.make(TOPIC, "ABC", min_insync_replicas="3")
    # More than there are replicas asks for as many as there are.
    play.make(f"{TOPIC}.more", "AB", min_insync_replicas="3")
    play.name_epoch(TOPIC, "first")

    def produce(what: str, acks: int, version: int = 9, *, timeout_ms: int = PATIENCE_MS, topic: str = TOPIC) -> None:
        data = PartitionProduceData(index=0, records=batch(b"a", b"b"))
        request = ProduceRequest(
            acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        play.at["A"].ask(what, ApiKey.PRODUCE, version, request)

    produce("all in sync", ALL)
    produce("all in sync, fewer than asked for", ALL, topic=f"{TOPIC}.more")
    with play.paused("C"):
        # C counts as in sync until it has been away for long enough.
        produce("not copied in time", ALL, timeout_ms=300)
        _read(play, "not copied")
        produce("the leader alone is asked for", LEADER)
        # Longer than it takes until C leaves the ISR: written, but to fewer than the topic wants.
        produce("too few after the append", ALL)
        play.until_in_sync(TOPIC, "AB", roles="AB")
        for version in (3, 5, 8, 9, 11):
            produce(f"v{version}: too few", ALL, version)
            produce(f"v{version}: too few, the leader alone is asked for", LEADER, version)
        _read(play, "too few")
        play.show("too few, shown", TOPIC)
    play.until_in_sync(TOPIC, "ABC")
    produce("all in sync again", ALL)
    _read(play, "all in sync again")


def _read(play: TrioPlayer, when: str) -> None:
    """Waits for more than there is, so that followers have the time to copy what they may."""
    line = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=500, min_bytes=1 << 20, topics=[FetchTopic(topic=TOPIC, partitions=[line])])
    play.at["A"].ask(f"{when}: read", ApiKey.FETCH, 11, fetch)
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[latest])])
    play.at["A"].ask(f"{when}: end", ApiKey.LIST_OFFSETS, 7, request)
