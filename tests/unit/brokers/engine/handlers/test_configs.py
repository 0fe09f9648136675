"""DescribeConfigs and IncrementalAlterConfigs of one instance's topics."""

from __future__ import annotations

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.unit.brokers.engine.handlers.asking import alter, config_of, create, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import House


async def test_settings_are_shown_with_where_they_come_from(house: House) -> None:
    await house.topic(retention_ms="1000", segment_bytes="100000")

    (size,) = (await config_of(house.mine, "orders", "segment.bytes")).configs
    (retention,) = (await config_of(house.mine, "orders", "retention.ms")).configs
    everything = (await config_of(house.mine, "orders")).configs

    assert (retention.value, retention.config_source) == ("1000", 1)
    assert [(synonym.name, synonym.source) for synonym in size.synonyms] == [
        ("segment.bytes", 1),
        ("log.segment.bytes", 5),
    ]
    # The broker's `log.retention.ms` has no default: it falls back to `log.retention.hours`.
    assert [(synonym.name, synonym.source) for synonym in retention.synonyms] == [("retention.ms", 1)]
    assert len(everything) > 15
    assert all(line.documentation for line in everything)


async def test_settings_are_set_extended_and_put_back(house: House) -> None:
    await house.topic()

    async def value(key: str) -> str:
        return str((await config_of(house.mine, "orders", key)).configs[0].value)

    assert await alter(house, ("retention.ms", 0, "5000"), ("cleanup.policy", 2, "compact")) == 0
    assert (await value("retention.ms"), await value("cleanup.policy")) == ("5000", "delete,compact")
    assert await alter(house, ("retention.ms", 1, None), ("cleanup.policy", 3, "delete")) == 0
    assert (await value("retention.ms"), await value("cleanup.policy")) == ("604800000", "compact")


@pytest.mark.parametrize(
    ("change", "name", "code"),
    [
        (("no.such.key", 0, "1"), "orders", ErrorCode.INVALID_CONFIG),
        (("preallocate", 0, "true"), "orders", ErrorCode.INVALID_CONFIG),
        (("leader.replication.throttled.replicas", 0, "*"), "orders", ErrorCode.INVALID_CONFIG),
        (("leader.replication.throttled.replicas", 2, "0:1"), "orders", ErrorCode.INVALID_CONFIG),
        (("flush.ms", 0, "-1"), "orders", ErrorCode.INVALID_CONFIG),
        (("retention.ms", 0, None), "orders", ErrorCode.INVALID_REQUEST),
        (("cleanup.policy", 2, None), "orders", ErrorCode.INVALID_REQUEST),
        (("retention.ms", 0, "soon"), "orders", ErrorCode.INVALID_CONFIG),
        (("retention.ms", 2, "1"), "orders", ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), "orders", ErrorCode.INVALID_REQUEST),
        (("retention.ms", 0, "1"), "secret", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("retention.ms", 0, "1"), "a/b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("retention.ms", 0, "1"), "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_setting_that_cannot_be_is_refused(
    house: House, change: tuple[str, int, str | None], name: str, code: ErrorCode
) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "secret")

    assert await alter(house, change, name=name) == code


async def test_a_list_can_be_emptied_and_filled_again(house: House) -> None:
    await house.topic()

    async def policy() -> str:
        return str((await config_of(house.mine, "orders", "cleanup.policy")).configs[0].value)

    assert await alter(house, ("cleanup.policy", 3, "delete")) == 0
    assert await policy() == ""
    assert await alter(house, ("cleanup.policy", 2, "compact")) == 0
    assert await policy() == "compact"


async def test_deleting_a_setting_that_does_not_exist_changes_nothing(house: House) -> None:
    await house.topic(retention_ms="1000")

    assert await alter(house, ("no.such.key", 1, None)) == 0
    assert (await config_of(house.mine, "orders", "retention.ms")).configs[0].value == "1000"


@pytest.mark.parametrize("name", ["", "a/b"])
async def test_settings_of_a_name_that_no_topic_can_have_are_refused(house: House, name: str) -> None:
    assert (await config_of(house.mine, name)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_foreign_topics_settings_are_unknown(house: House) -> None:
    await house.broker.create_topic(house.theirs, "secret")

    assert (await config_of(house.mine, "secret")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_broker_shows_to_read_only_what_concerns_topics(house: House) -> None:
    lines = {line.name: line for line in (await config_of(house.mine, "1", kind=4)).configs}

    assert lines["message.max.bytes"].value == "1048588"
    assert lines["num.partitions"].value == "3"
    assert all(line.read_only and line.documentation and not line.is_sensitive for line in lines.values())
    (item,) = (await config_of(house.mine, "1", "log.segment.bytes", kind=4)).configs
    assert (item.name, item.config_source) == ("log.segment.bytes", 5)
    assert (await config_of(house.mine, "", kind=4)).configs == []
    assert (await config_of(house.mine, "77", kind=4)).error_code == ErrorCode.INVALID_REQUEST
    assert not any("zookeeper" in name or "dir" in name or "listener" in name for name in lines)


DISK_SETTINGS = {"file.delete.delay.ms": "61000", "flush.messages": "1", "flush.ms": "1000"}
IN_FORCE = {
    "file.delete.delay.ms": ("60000", "log.segment.delete.delay.ms.max"),
    "flush.messages": (str(2**63 - 1), "log.flush.interval.messages.min"),
    "flush.ms": ("30000", "log.flush.interval.ms.min"),
}


async def test_costly_disk_settings_are_accepted_and_described_as_the_bound_in_force(house: House) -> None:
    """These settings are also accepted at creation: librdkafka's own tests and MirrorMaker set them."""
    wanted = wanted_topic("orders", **{name.replace(".", "_"): value for name, value in DISK_SETTINGS.items()})
    (made,) = await create(house.mine, wanted)
    assert made.error_code == 0
    sent = {line.name: (line.value, line.config_source) for line in made.configs}

    lines = {line.name: line for line in (await config_of(house.mine, "orders")).configs}
    for name, (value, bound) in IN_FORCE.items():
        line = lines[name]
        assert sent[name] == (line.value, line.config_source) == (value, 4)
        assert not line.read_only
        assert not line.is_default
        synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in line.synonyms]
        assert synonyms[:2] == [(bound, value, 4), (name, DISK_SETTINGS[name], 1)]

    assert await alter(house, ("flush.ms", 0, "40000")) == 0
    (line,) = (await config_of(house.mine, "orders", "flush.ms")).configs
    assert (line.value, line.config_source) == ("40000", 1)


async def test_a_tenant_sees_how_far_its_settings_go(house: House) -> None:
    lines = {line.name: line for line in (await config_of(house.mine, "1", kind=4)).configs}

    for value, bound in IN_FORCE.values():
        assert (lines[bound].value, lines[bound].config_source, lines[bound].read_only) == (value, 5, True)


async def test_operators_change_the_bounds_while_the_broker_runs(house: House) -> None:
    await house.topic(flush_ms="1000")
    operator = await house.broker.internal_client("penstock")

    change = IncrementalAlterableConfig(name="log.flush.interval.ms.min", config_operation=0, value="500")
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await operator.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert answer.responses[0].error_code == 0

    (line,) = (await config_of(house.mine, "orders", "flush.ms")).configs
    assert (line.value, line.config_source) == ("1000", 1)
