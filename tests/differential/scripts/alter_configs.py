"""AlterConfigs of topics in every version: what is not named goes back to its default."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
)
from tests.differential.play import Player
from tests.differential.scripts.configs import KEYS, TOPIC, described

PREFIX = "diff.alter"

# Keys that a tenant of ours may only write back.
OPERATORS = (
    ("preallocate", "false"),
    ("leader.replication.throttled.replicas", ""),
    ("follower.replication.throttled.replicas", ""),
)


def script(player: Player) -> None:
    for version in range(3):
        _version(player, version)


def _version(player: Player, version: int) -> None:
    name = f"{PREFIX}.v{version}"
    player.make_topic(name)

    def resource(*configs: tuple[str, str | None], topic: str = name, kind: int = TOPIC) -> Any:
        given = [AlterableConfig(name=key, value=value) for key, value in configs]
        return AlterConfigsResource(resource_type=kind, resource_name=topic, configs=given)

    def ask(what: str, *resources: Any, validate_only: bool = False, may_be_silent: bool = False) -> None:
        request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
        if may_be_silent:
            player.ask(f"v{version}: {what}", ApiKey.ALTER_CONFIGS, version, request, may_be_silent=True)
        else:
            answer = player.call(ApiKey.ALTER_CONFIGS, version, request)
            answer.responses.sort(key=lambda result: (result.resource_type, result.resource_name))
            player.write_down_answer(f"v{version}: {what}", answer)
        described_now = player.call(
            ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[described(name, KEYS)])
        )
        values = {config.name: [config.value, config.config_source] for config in described_now.results[0].configs}
        player.write_down(f"v{version}: {what}, then", {key: values[key] for key in sorted(values)})

    ask("one", resource(("retention.ms", "5000")))
    ask("another", resource(("segment.bytes", "2000000")))
    ask("two", resource(("retention.ms", "6000"), ("cleanup.policy", "compact,delete")))
    ask("only checked", resource(("retention.ms", "7000")), validate_only=True)
    ask("only checked, wrong", resource(("retention.ms", "soon")), validate_only=True)
    ask("an unknown key", resource(("no.such.key", "1")))
    ask("a right and an unknown key", resource(("retention.ms", "1"), ("no.such.key", "1")))
    ask("no number", resource(("retention.ms", "soon")))
    ask("out of range", resource(("segment.bytes", "1")))
    ask("the operator's keys as they are", resource(*OPERATORS))
    ask("null", resource(("retention.ms", None)))
    ask("null for an unknown key", resource(("no.such.key", None)))
    ask("a key twice", resource(("retention.ms", "8000"), ("retention.ms", "9000")))
    ask("a key twice, the first wrong", resource(("retention.ms", "soon"), ("retention.ms", "9500")))
    ask("nothing, only checked", resource(), validate_only=True)
    ask("nothing", resource())
    ask("no resources")
    ask("an unknown topic", resource(("retention.ms", "1"), topic=f"{PREFIX}.unknown"))
    ask("a bad topic name", resource(("retention.ms", "1"), topic="a/b"))
    ask("an empty topic name", resource(("retention.ms", "1"), topic=""))
    ask("an unknown kind of resource", resource(("retention.ms", "1"), kind=77))
    ask("an unknown topic and a null", resource(("retention.ms", None), topic=f"{PREFIX}.unknown"))
    ask("an unknown topic and an unknown key", resource(("no.such.key", "1"), topic=f"{PREFIX}.unknown"))
    ask(
        "a right and an unknown topic",
        resource(("retention.ms", "8000")),
        resource(("retention.ms", "1"), topic=f"{PREFIX}.unknown"),
    )
    ask(
        "a topic twice",
        resource(("retention.ms", "1")),
        resource(("retention.ms", "2")),
        may_be_silent=True,
    )
