"""CreatePartitions in every version."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.differential.play import Player

PREFIX = "diff.partitions"


def script(player: Player) -> None:
    for version in range(4):
        _version(player, version)


def _version(player: Player, version: int) -> None:
    name = f"{PREFIX}.v{version}"
    player.make_topic(name, 2)
    here = player.broker_id

    def ask(what: str, *wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> None:
        topics = [
            CreatePartitionsTopic(
                name=topic,
                count=count,
                assignments=None
                if assigned is None
                else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned],
            )
            for topic, count, assigned in wanted
        ]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)
        answer: Any = player.call(ApiKey.CREATE_PARTITIONS, version, request)
        answer.results.sort(key=lambda result: result.name)
        player.write_down_answer(f"v{version}: {what}", answer)

    def listed(what: str) -> None:
        player.until_led(name)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer = player.call(ApiKey.METADATA, 9, request)
        answer.topics[0].partitions.sort(key=lambda partition: partition.partition_index)
        player.write_down_answer(f"v{version}: {what}", answer)

    ask("no topics")
    ask("an unknown topic", (f"{PREFIX}.unknown", 3, None))
    ask("a bad name", ("a/b", 3, None))
    ask("the same count", (name, 2, None))
    ask("fewer", (name, 1, None))
    ask("none", (name, 0, None))
    ask("negative", (name, -1, None))
    ask("a topic twice", (name, 3, None), (name, 4, None))
    ask("assigned, too few", (name, 4, [[here]]))
    ask("assigned, too many", (name, 3, [[here], [here]]))
    ask("assigned, unknown broker", (name, 3, [[here + 1000]]))
    ask("assigned, a broker twice", (name, 3, [[here, here]]))
    ask("assigned, no broker", (name, 3, [[]]))
    ask("assigned, empty", (name, 3, []))
    ask("only checked", (name, 5, None), validate_only=True)
    ask("only checked, assigned", (name, 3, [[here]]), validate_only=True)
    listed("nothing has changed")
    ask("one more", (name, 3, [[here]]))
    listed("one more, listed")
    ask("two more, one topic wrong", (name, 5, [[here], [here]]), (f"{PREFIX}.unknown", 5, None))
    listed("two more, listed")
