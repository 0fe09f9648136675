"""CreateTopics and DeleteTopics in every version (CTL-19)."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.differential.play import Player

PREFIX = "diff.topics"
TIMEOUT_MS = 10_000


def script(player: Player) -> None:
    player.make_topic(f"{PREFIX}.exists")
    player.make_topic(f"{PREFIX}.with_underscore")
    for version in range(2, 8):
        _create(player, version)
    for version in range(1, 7):
        _delete(player, version)


# Whose replicas an operator throttles.
ROLES = ("leader", "follower")


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)


def config(name: str, value: str | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value)]


def assigned(*brokers: list[int], first: int = 0) -> dict[str, Any]:
    return {
        "partitions": -1,
        "factor": -1,
        "assignments": [
            CreatableReplicaAssignment(partition_index=first + index, broker_ids=ids)
            for index, ids in enumerate(brokers)
        ],
    }


class _Creating:
    """Asks for topics in one version."""

    def __init__(self, player: Player, version: int) -> None:
        self.player = player
        self.version = version
        self.name = f"{PREFIX}.v{version}"

    def __call__(self, what: str, *topics: CreatableTopic, validate_only: bool = False) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
        self.player.ask(f"create v{self.version}: {what}", ApiKey.CREATE_TOPICS, self.version, request)


def _create(player: Player, version: int) -> None:
    ask = _Creating(player, version)
    name = ask.name
    ask("a topic", topic(f"{name}.a", 3))
    player.until_led(f"{name}.a")
    ask("a topic that exists", topic(f"{PREFIX}.exists"))
    ask("no topics")
    ask("a topic twice", topic(f"{name}.twice"), topic(f"{name}.twice"))
    ask("one right, one wrong", topic(f"{name}.right"), topic(f"{name}.wrong", 0))
    ask("only checked", topic(f"{name}.checked", 2), validate_only=True)
    ask("only checked, exists", topic(f"{PREFIX}.exists"), validate_only=True)
    ask("only checked, no partitions", topic(f"{name}.checked", 0), validate_only=True)
    for kind, bad in {
        "slash": "a/b",
        "empty": "",
        "dot": ".",
        "dots": "..",
        "long": "x" * 250,
        "space": "a b",
        "umlaut": "ä",
        "internal": "__cluster_metadata",
    }.items():
        ask(f"bad name: {kind}", topic(bad))
    ask("the longest name", topic(f"{name}." + "x" * (249 - len(name) - 1)), validate_only=True)
    ask("a name that collides in metrics", topic(f"{PREFIX}.with.underscore"))
    for count in (0, -2, -(1 << 31)):
        ask(f"{count} partitions", topic(f"{name}.count", count))
    for factor in (0, -2, 100, 32767):
        ask(f"replication factor {factor}", topic(f"{name}.factor", 1, factor))
    if version >= 4:
        ask("the broker's defaults", topic(f"{name}.defaults", -1, -1))
    else:
        ask("the broker's defaults", topic(f"{name}.defaults", -1, -1), validate_only=True)
    _create_assigned(ask, player.broker_id)
    _create_configured(ask)


def _create_assigned(ask: _Creating, here: int) -> None:
    name = ask.name
    ask("assigned", topic(f"{name}.assigned", **assigned([here], [here])))
    ask("assigned, a gap", topic(f"{name}.gap", **assigned([here], first=1)))
    ask("assigned, unequal", topic(f"{name}.unequal", **assigned([here], [here, here + 1000])))
    ask("assigned, a broker twice", topic(f"{name}.broker2", **assigned([here, here])))
    ask(
        "assigned and counted",
        CreatableTopic(
            name=f"{name}.both",
            num_partitions=1,
            replication_factor=1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[here])],
        ),
    )
    ask("assigned, negative index", topic(f"{name}.negative", **assigned([here], first=-1)))


def _create_configured(ask: _Creating) -> None:
    name = ask.name
    ask("a config", topic(f"{name}.config", configs=config("retention.ms", "1000")))
    for what, key, value in (
        ("unknown", "no.such.key", "1"),
        ("no number", "retention.ms", "soon"),
        ("out of range", "segment.bytes", "1"),
        ("not in the list", "cleanup.policy", "burn"),
        ("null", "retention.ms", None),
        ("no boolean", "unclean.leader.election.enable", "perhaps"),
        ("a codec", "compression.type", "zstd"),
        ("no codec", "compression.type", "zip"),
        ("a timestamp type", "message.timestamp.type", "LogAppendTime"),
        ("a dictionary", "max.message.bytes", "-1"),
        ("min ISR 0", "min.insync.replicas", "0"),
    ):
        ask(f"config {what}", topic(f"{name}.wanted", configs=config(key, value)), validate_only=True)
    ask("a bad config, exists", topic(f"{name}.config", configs=config("no.such.key", "1")), validate_only=True)
    as_they_are = [("preallocate", "false"), *((f"{role}.replication.throttled.replicas", "") for role in ROLES)]
    for key, value in as_they_are:
        ask(f"config {key} as it is", topic(f"{name}.wanted", configs=config(key, value)), validate_only=True)
    twice = config("retention.ms", "1") + config("retention.ms", "2")
    ask("config twice", topic(f"{name}.config2", configs=twice), validate_only=True)


def _delete(player: Player, version: int) -> None:
    name = f"{PREFIX}.delete{version}"
    topic_id = player.make_topic(name)
    other_id = player.make_topic(f"{name}.other")

    def ask(what: str, *names: str | None, ids: tuple[bytes, ...] = (), timeout_ms: int = TIMEOUT_MS) -> None:
        states = [DeleteTopicState(name=name) for name in names] + [DeleteTopicState(topic_id=entry) for entry in ids]
        request = DeleteTopicsRequest(
            topics=states, topic_names=[name for name in names if name is not None], timeout_ms=timeout_ms
        )
        answer = player.call(ApiKey.DELETE_TOPICS, version, request)
        # A delete that asked for nothing right leaves order to the broker.
        answer.responses.sort(key=lambda item: (item.name or "", item.topic_id))
        player.write_down_answer(f"delete v{version}: {what}", answer)

    ask("a topic that never was", f"{name}.unknown")
    ask("no topics")
    for kind, bad in {"slash": "a/b", "empty": "", "long": "x" * 250}.items():
        ask(f"bad name: {kind}", bad)
    ask("a topic", name)
    player.until_gone(name)
    ask("a topic that is gone", name)
    if version < 6:
        ask("a topic twice", f"{name}.other", f"{name}.other")
        return
    ask("an unknown id", ids=(bytes(range(16)),))
    ask("a gone id", ids=(topic_id,))
    ask("neither name nor id", None)
    both = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=f"{name}.other", topic_id=other_id)], timeout_ms=TIMEOUT_MS
    )
    player.ask(f"delete v{version}: both name and id", ApiKey.DELETE_TOPICS, version, both)
    ask("an id twice", ids=(other_id, other_id))
    ask("a topic by id", ids=(other_id,))
