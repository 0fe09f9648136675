"""DescribeConfigs and IncrementalAlterConfigs of topics and brokers in every version."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.differential.play import Player

PREFIX = "diff.configs"
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
# Whose replicas an operator throttles.
ROLES = ("leader", "follower")
KEYS = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "compression.type", "retention.bytes"]


def script(player: Player) -> None:
    player.make_topic(PREFIX, retention_ms="1000")
    for version in range(1, 5):
        _describe(player, version)
    for version in range(2):
        _alter(player, version)


def described(name: str, keys: list[str] | None, kind: int = TOPIC) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)


def _describe(player: Player, version: int) -> None:
    def ask(what: str, *resources: DescribeConfigsResource, **flags: bool) -> None:
        request = DescribeConfigsRequest(resources=list(resources), **flags)
        answer = player.call(ApiKey.DESCRIBE_CONFIGS, version, request)
        answer.results.sort(key=lambda result: (result.resource_type, result.resource_name))
        player.write_down_answer(f"describe v{version}: {what}", answer)

    ask("some keys", described(PREFIX, KEYS))
    ask("one key", described(PREFIX, ["retention.ms"]))
    ask("an unknown key", described(PREFIX, ["no.such.key"]))
    ask("an unknown and a known key", described(PREFIX, ["no.such.key", "retention.ms"]))
    ask("a key twice", described(PREFIX, ["retention.ms", "retention.ms"]))
    ask("synonyms", described(PREFIX, KEYS), include_synonyms=True)
    if version >= 3:
        ask("documentation", described(PREFIX, KEYS), include_documentation=True)
    ask("an unknown topic", described(f"{PREFIX}.unknown", KEYS))
    ask("a bad topic name", described("a/b", KEYS))
    ask("an empty topic name", described("", KEYS))
    ask("an unknown broker", described("12345", KEYS, BROKER))
    ask("a broker that is no number", described("one", KEYS, BROKER))
    ask("an unknown kind of resource", described(PREFIX, KEYS, 77))
    ask("kind 0", described(PREFIX, KEYS, 0))
    ask("no resources")
    ask("two topics, one unknown", described(PREFIX, ["retention.ms"]), described(f"{PREFIX}.unknown", None))
    ask("a topic twice", described(PREFIX, ["retention.ms"]), described(PREFIX, ["cleanup.policy"]))
    for what, keys in (("all keys", None), ("an empty list of keys", [])):
        answer = player.call(
            ApiKey.DESCRIBE_CONFIGS, version, DescribeConfigsRequest(resources=[described(PREFIX, keys)])
        )
        player.write_down(
            f"describe v{version}: {what}, those every topic has",
            sorted(config.name for config in answer.results[0].configs if config.name in KEYS),
        )


def change(name: str, operation: int, value: str | None = None) -> IncrementalAlterableConfig:
    return IncrementalAlterableConfig(name=name, config_operation=operation, value=value)


def _alter(player: Player, version: int) -> None:
    name = f"{PREFIX}.alter{version}"
    player.make_topic(name)

    def resource(*changes: IncrementalAlterableConfig, topic: str = name, kind: int = TOPIC) -> Any:
        return IncrementalAlterConfigsResource(resource_type=kind, resource_name=topic, configs=list(changes))

    def ask(what: str, *resources: Any, validate_only: bool = False) -> None:
        request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
        answer = player.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)
        answer.responses.sort(key=lambda result: (result.resource_type, result.resource_name))
        player.write_down_answer(f"alter v{version}: {what}", answer)
        request = DescribeConfigsRequest(resources=[described(name, KEYS)])
        values = {
            config.name: config.value for config in player.call(ApiKey.DESCRIBE_CONFIGS, 4, request).results[0].configs
        }
        player.write_down(f"alter v{version}: {what}, then", values)

    ask("set", resource(change("retention.ms", SET, "5000")))
    ask("set two", resource(change("retention.ms", SET, "6000"), change("segment.bytes", SET, "2000000")))
    ask("only checked", resource(change("retention.ms", SET, "7000")), validate_only=True)
    ask("delete", resource(change("retention.ms", DELETE)))
    ask("delete what is not set", resource(change("retention.bytes", DELETE)))
    ask("append", resource(change("cleanup.policy", APPEND, "compact")))
    ask("append again", resource(change("cleanup.policy", APPEND, "compact")))
    ask("subtract", resource(change("cleanup.policy", SUBTRACT, "delete")))
    ask("subtract what is not in it", resource(change("cleanup.policy", SUBTRACT, "delete")))
    ask("subtract the last", resource(change("cleanup.policy", SUBTRACT, "compact")))
    ask("delete the list", resource(change("cleanup.policy", DELETE)))
    ask("append to what is no list", resource(change("retention.ms", APPEND, "1")))
    ask("an unknown operation", resource(change("retention.ms", 9, "1")))
    ask("an unknown key", resource(change("no.such.key", SET, "1")))
    ask("delete an unknown key", resource(change("no.such.key", DELETE)))
    ask("no number", resource(change("retention.ms", SET, "soon")))
    ask("out of range", resource(change("segment.bytes", SET, "1")))
    ask("null", resource(change("retention.ms", SET, None)))
    ask("one right, one wrong", resource(change("retention.ms", SET, "1"), change("segment.bytes", SET, "x")))
    ask("a key twice", resource(change("retention.ms", SET, "1"), change("retention.ms", SET, "2")))
    as_they_are = [("preallocate", "false"), *((f"{role}.replication.throttled.replicas", "") for role in ROLES)]
    for key, value in as_they_are:
        ask(f"{key} as it is", resource(change(key, SET, value)))
        ask(f"{key} deleted", resource(change(key, DELETE)))
    ask("nothing", resource())
    ask("no resources")
    ask("an unknown topic", resource(change("retention.ms", SET, "1"), topic=f"{PREFIX}.unknown"))
    ask("a bad topic name", resource(change("retention.ms", SET, "1"), topic="a/b"))
    ask("an empty topic name", resource(change("retention.ms", SET, "1"), topic=""))
    ask("an unknown kind of resource", resource(change("retention.ms", SET, "1"), kind=77))
    ask("a topic twice", resource(change("retention.ms", SET, "1")), resource(change("retention.ms", SET, "2")))
    ask(
        "a right and an unknown topic",
        resource(change("retention.ms", SET, "8000")),
        resource(change("retention.ms", SET, "1"), topic=f"{PREFIX}.unknown"),
    )
