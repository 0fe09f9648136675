"""CreateTopics and CreatePartitions with explicit assignments to three brokers (CTL-19, REP-35)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from tests.differential.trio.play import TrioPlayer

PREFIX = "trio.creation"


def script(play: TrioPlayer) -> None:
    for version in (2, 4, 5, 7):
        _create(play, version)
    for version in (0, 3):
        _grow(play, version)


def _create(play: TrioPlayer, version: int) -> None:
    def ask(what: str, *replicas: str, indexes: list[int] | None = None, check: bool = False, **more: str) -> str:
        name = f"{PREFIX}.v{version}.{what.replace(' ', '-').replace(',', '')}"
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=play.ids(roles))
                for index, roles in zip(indexes or range(len(replicas)), replicas, strict=True)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in more.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=check)
        play.at["A"].ask(f"create v{version}: {what}", ApiKey.CREATE_TOPICS, version, request)
        return name

    def counted(what: str, partitions: int, factor: int) -> str:
        name = f"{PREFIX}.v{version}.{what.replace(' ', '-')}"
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        play.at["A"].ask(f"create v{version}: {what}", ApiKey.CREATE_TOPICS, version, request)
        return name

    shown = ask("three replicas", "ABC", "BCA", "CAB", min_insync_replicas="2")
    for index, roles in enumerate(("ABC", "BCA", "CAB")):
        play.until_in_sync(shown, roles, index)
    play.show(f"create v{version}: three replicas, shown", shown)
    shown = ask("another order of partitions", "CB", "BA", indexes=[1, 0])
    play.until_in_sync(shown, "BA")
    play.until_in_sync(shown, "BC", 1)
    play.show(f"create v{version}: another order of partitions, shown", shown)
    ask("a broker there is none of", "AB?", check=True)
    ask("a negative broker", "A!", check=True)
    ask("a broker twice", "ABA")
    ask("a partition twice", "AB", "BC", indexes=[0, 0], check=True)
    ask("no broker", "", check=True)
    ask("not the same number of brokers", "ABC", "AB")
    ask("begins at one", "AB", indexes=[1])
    ask("leaves one out", "AB", "BC", indexes=[0, 2])
    ask("only checked", "CBA", check=True)
    counted("three times", 1, 3)
    counted("four times", 1, 4)


def _grow(play: TrioPlayer, version: int) -> None:
    name = f"{PREFIX}.grown.v{version}"
    play.make(name, "ABC")

    def ask(what: str, count: int, *replicas: str, check: bool = False) -> None:
        topic = CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[CreatePartitionsAssignment(broker_ids=play.ids(roles)) for roles in replicas] or None,
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=check)
        play.at["A"].ask(f"grow v{version}: {what}", ApiKey.CREATE_PARTITIONS, version, request)

    ask("fewer replicas", 2, "AB")
    ask("a broker there is none of", 2, "AB?")
    ask("a broker twice", 2, "ABA")
    ask("no broker", 2, "")
    ask("not the same number of brokers", 3, "ABC", "AB")
    ask("too few", 3, "ABC")
    ask("too many", 2, "ABC", "BCA")
    ask("only checked", 2, "CBA", check=True)
    ask("two more", 3, "CBA", "BAC")
    for index, roles in ((1, "CBA"), (2, "BAC")):
        play.until_in_sync(name, roles, index)
    play.show(f"grow v{version}: two more, shown", name)
    ask("one more, not assigned", 4)
    play.until_in_sync(name, "ABC", 3)
