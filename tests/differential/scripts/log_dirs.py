"""DescribeLogDirs in every version, with the sizes of a few partitions."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.batches import batch
from tests.differential.play import Player

PREFIX = "diff.logdirs"


def script(player: Player) -> None:
    player.make_topic(PREFIX, 3)
    player.make_topic(f"{PREFIX}.other")
    for partition, count in ((0, 1), (1, 3)):
        for _ in range(count):
            data = PartitionProduceData(index=partition, records=batch(b"value"))
            request = ProduceRequest(
                acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=PREFIX, partition_data=[data])]
            )
            assert player.call(ApiKey.PRODUCE, 7, request).responses[0].partition_responses[0].error_code == 0
    for version in range(5):
        _version(player, version)


def _of_script(answer: Any) -> Any:
    """Without the broker's own paths, its volume, its order, and topics that other scripts made."""
    for number, result in enumerate(answer.results):
        result.log_dir = f"directory {number}" if result.log_dir else ""
        result.total_bytes = "bytes" if result.total_bytes >= 0 else -1
        result.usable_bytes = "bytes" if result.usable_bytes >= 0 else -1
        result.topics = sorted((t for t in result.topics if t.name.startswith(PREFIX)), key=lambda topic: topic.name)
        for topic in result.topics:
            topic.partitions.sort(key=lambda line: line.partition_index)
    return answer


def _version(player: Player, version: int) -> None:
    def ask(what: str, topics: list[tuple[str, list[int]]] | None) -> None:
        asked = None
        if topics is not None:
            asked = [DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in topics]
        answer = player.call(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=asked))
        player.write_down_answer(f"v{version}: {what}", _of_script(answer))

    ask("all", None)
    ask("no topics", [])
    ask("one partition", [(PREFIX, [1])])
    ask("two topics", [(PREFIX, [0, 2]), (f"{PREFIX}.other", [0])])
    ask("a topic without partitions", [(PREFIX, [])])
    ask("an unknown partition", [(PREFIX, [9])])
    ask("an unknown topic", [(f"{PREFIX}.unknown", [0])])
    ask("a partition twice", [(PREFIX, [1, 1])])
    ask("a topic twice", [(PREFIX, [1]), (PREFIX, [2])])
    ask("an empty topic name", [("", [0])])
