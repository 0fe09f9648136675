"""DeleteRecords in every version: what is refused, what is left, and where reading begins afterwards."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.differential.batches import batch
from tests.differential.play import Player

PREFIX = "diff.delete"
EARLIEST, LATEST = -2, -1


def script(player: Player) -> None:
    player.make_topic(f"{PREFIX}.compacted", cleanup_policy="compact")
    player.make_topic(f"{PREFIX}.both", cleanup_policy="compact,delete")
    for version in range(3):
        _version(player, version)


def _append(player: Player, topic: str, partition: int, count: int) -> None:
    for _ in range(count):
        data = PartitionProduceData(index=partition, records=batch(b"value"))
        request = ProduceRequest(
            acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        answer = player.call(ApiKey.PRODUCE, 7, request)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


def _version(player: Player, version: int) -> None:
    name = f"{PREFIX}.v{version}"
    player.make_topic(name, 2)
    _append(player, name, 0, 6)
    _append(player, name, 1, 2)

    def ask(what: str, *topics: tuple[str, list[tuple[int, int]]]) -> None:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[DeleteRecordsPartition(partition_index=at, offset=offset) for at, offset in wanted],
                )
                for topic, wanted in topics
            ],
            timeout_ms=5_000,
        )
        answer = player.call(ApiKey.DELETE_RECORDS, version, request)
        answer.topics.sort(key=lambda topic: topic.name)
        for topic in answer.topics:
            topic.partitions.sort(key=lambda line: line.partition_index)
        player.write_down_answer(f"v{version}: {what}", answer)

    def look(what: str) -> None:
        for at, timestamp in (("earliest", EARLIEST), ("latest", LATEST)):
            wanted = ListOffsetsTopic(
                name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            )
            request = ListOffsetsRequest(replica_id=-1, topics=[wanted])
            player.ask(f"v{version}: {what}, {at}", ApiKey.LIST_OFFSETS, 5, request)

    ask("nothing below 0", (name, [(0, 0)]))
    ask("one", (name, [(0, 1)]))
    look("one")
    ask("the same again", (name, [(0, 1)]))
    ask("below the start", (name, [(0, 0)]))
    ask("past the end", (name, [(0, 7)]))
    ask("far past the end", (name, [(0, 1 << 50)]))
    ask("minus two", (name, [(0, -2)]))
    look("refused")
    ask("two partitions", (name, [(0, 3), (1, 1)]))
    ask("one right, one wrong", (name, [(0, 4), (1, 9)]))
    for offset in (3, 4):
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000)
        request = FetchRequest(
            replica_id=-1,
            max_bytes=1_000,
            topics=[FetchTopic(topic=name, partitions=[wanted])],
        )
        player.ask(f"v{version}: a fetch at {offset}", ApiKey.FETCH, 11, request)
    ask("all", (name, [(0, -1)]))
    look("all")
    _append(player, name, 0, 1)
    look("an append after it")
    ask("an unknown partition", (name, [(5, 0)]))
    ask("a negative partition", (name, [(-1, 0)]))
    ask("an unknown topic", (f"{PREFIX}.unknown", [(0, 0)]))
    ask("an empty topic name", ("", [(0, 0)]))
    ask("a bad topic name", ("a/b", [(0, 0)]))
    ask("a known and an unknown topic", (name, [(1, 1)]), (f"{PREFIX}.unknown", [(0, 0)]))
    ask("a compacted topic", (f"{PREFIX}.compacted", [(0, 0)]))
    ask("a compacted topic, past the end", (f"{PREFIX}.compacted", [(0, 5)]))
    ask("a compacted topic, all", (f"{PREFIX}.compacted", [(0, -1)]))
    ask("compacted and deleted", (f"{PREFIX}.both", [(0, -1)]))
    ask("an empty partition, all", (f"{PREFIX}.both", [(0, 0)]))
    ask("a partition twice", (name, [(1, 1), (1, 2)]))
    ask("a topic twice", (name, [(0, -1)]), (name, [(1, 2)]))
    ask("no partitions", (name, []))
    ask("no topics")
