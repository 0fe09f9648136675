"""AlterConfigs replaces all settings of a topic, and the new ones apply to the next request."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.testkit.records import batch, fetch, produce
from tests.testkit.small_segments import SMALL_SEGMENTS
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import config_of, create, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, House

OPERATORS = ("preallocate", "leader.replication.throttled.replicas")
UNBOUND = {"log.flush.interval.messages.min": "1", "log.flush.interval.ms.min": "0"}


async def replace(
    client: WireClient,
    configs: dict[str, str | None],
    name: str = "orders",
    *,
    version: int = 2,
    kind: int = 2,
    validate_only: bool = False,
) -> int:
    given = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = (await client.call(ApiKey.ALTER_CONFIGS, version, request)).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return int(answer.error_code)


async def own_settings(client: WireClient, name: str = "orders") -> dict[str, str]:
    """Returns the settings of the topic itself."""
    return {line.name: line.value for line in (await config_of(client, name)).configs if line.config_source == 1}


@pytest.mark.parametrize("version", range(3))
async def test_settings_left_out_return_to_their_defaults(house: House, version: int) -> None:
    await house.topic(retention_ms="1000", segment_bytes="100000")

    assert await replace(house.mine, {"retention.ms": " 2000 "}, version=version) == 0
    assert await own_settings(house.mine) == {"retention.ms": "2000"}
    assert await replace(house.mine, {}, version=version) == 0
    assert await own_settings(house.mine) == {}


async def test_only_checked_changes_nothing(house: House) -> None:
    await house.topic(retention_ms="1000")

    assert await replace(house.mine, {"retention.ms": "5"}, validate_only=True) == 0
    assert await replace(house.mine, {"retention.ms": "x"}, validate_only=True) == ErrorCode.INVALID_CONFIG
    assert await own_settings(house.mine) == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"no.such.key": "1"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, ErrorCode.INVALID_CONFIG),
        *(({key: "1"}, ErrorCode.INVALID_CONFIG) for key in OPERATORS),
    ],
)
async def test_a_request_with_an_invalid_setting_is_refused_whole(
    house: House, configs: dict[str, str | None], code: int
) -> None:
    await house.topic(retention_ms="1000")

    assert await replace(house.mine, {"segment.bytes": "100000"} | configs) == code
    assert await own_settings(house.mine) == {"retention.ms": "1000"}


@pytest.mark.usefixtures("administered")
async def test_topics_of_others_and_brokers_cannot_be_changed(house: House) -> None:
    await house.broker.create_topic(house.theirs, "secret")

    assert await replace(house.mine, {}, "secret") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await replace(house.mine, {}, "") == ErrorCode.INVALID_REQUEST
    assert await replace(house.mine, {}, "1", kind=4) == ErrorCode.POLICY_VIOLATION


async def test_settings_of_the_operator_stay(house: House) -> None:
    await house.topic()
    operator = await house.broker.internal_client("penstock")
    internal = f"{MINE}.orders"

    assert await replace(operator, {"leader.replication.throttled.replicas": "*"}, internal) == 0
    assert await replace(house.mine, {"retention.ms": "5"}) == 0
    assert await own_settings(house.mine) == {"leader.replication.throttled.replicas": "*", "retention.ms": "5"}
    assert await replace(operator, {}, internal) == 0
    assert await own_settings(house.mine) == {}


async def test_crossed_bounds_are_refused_when_a_topic_is_made(house: House) -> None:
    wanted = wanted_topic("crossed", min_compaction_lag_ms="2", max_compaction_lag_ms="1")

    assert [topic.error_code for topic in await create(house.mine, wanted)] == [ErrorCode.INVALID_CONFIG]


# -- every key without a restart ------------------------------------------------------------------------------------


async def in_force(house: House, configs: dict[str, str]) -> Any:
    """Returns the partition of `orders`, created without settings, after `configs` were set."""
    await house.topic()
    await produce(house.mine, "orders", batch(b"first"))
    assert await replace(house.mine, configs) == 0
    partition = house.broker.broker.table.get(f"{MINE}.orders", 0)
    assert partition is not None
    return partition


async def test_a_smaller_message_limit_counts_for_the_next_batch(house: House) -> None:
    await in_force(house, {"max.message.bytes": "100"})

    assert (await produce(house.mine, "orders", batch(b"x" * 100))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await replace(house.mine, {}) == 0
    assert (await produce(house.mine, "orders", batch(b"x" * 100))).error_code == 0


async def test_the_brokers_clock_stamps_the_next_batch(house: House) -> None:
    await in_force(house, {"message.timestamp.type": "LogAppendTime"})

    assert (await produce(house.mine, "orders", batch(b"x"))).log_append_time_ms > 0


@pytest.mark.parametrize("key", ["message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"])
async def test_old_records_are_refused_from_the_next_batch_on(house: House, key: str) -> None:
    await in_force(house, {key: "1000"})

    assert (await produce(house.mine, "orders", batch(b"x"))).error_code == ErrorCode.INVALID_TIMESTAMP


async def test_more_replicas_than_there_are_do_not_stop_a_single_one(house: House) -> None:
    partition = await in_force(house, {"min.insync.replicas": "3"})

    assert partition.config.min_insync_replicas == 3
    assert (await produce(house.mine, "orders", batch(b"x"), acks=-1)).error_code == 0


async def test_the_topics_codec_is_applied_to_the_next_batch(house: House) -> None:
    await in_force(house, {"compression.type": "gzip"})
    await produce(house.mine, "orders", batch(b"x" * 500))

    assert (await fetch(house.mine, "orders", offset=1)).records[22] & 7 == 1


@pytest.mark.parametrize("overrides", [SMALL_SEGMENTS])
async def test_segments_roll_by_the_size_that_is_set(house: House) -> None:
    partition = await in_force(house, {"segment.bytes": "20000"})
    for _ in range(6):
        await produce(house.mine, "orders", batch(b"x" * 8_000))

    assert len(partition.log.segments) >= 3


@pytest.mark.parametrize("size", ["100000", "16384", "1048575"])
async def test_segments_are_no_smaller_than_the_operators_bound_and_described_as_set(house: House, size: str) -> None:
    """A client that reads settings and writes them back finds what it wrote."""
    partition = await in_force(house, {"segment.bytes": size})
    for _ in range(30):
        assert (await produce(house.mine, "orders", batch(b"x" * 8_000))).error_code == 0

    assert len(partition.log.segments) == 1
    assert partition.log.config.segment_bytes == 1 << 20
    assert await own_settings(house.mine) == {"segment.bytes": size}


async def test_segments_roll_by_the_time_that_is_set_less_a_jitter_of_the_partitions_own(house: House) -> None:
    partition = await in_force(house, {"segment.ms": "100000", "segment.jitter.ms": "50000"})

    assert 50_000 <= partition.log.config.segment_ms <= 100_000
    assert partition.config.log.segment_ms == 100_000


async def test_a_smaller_index_interval_makes_more_entries(house: House) -> None:
    partition = await in_force(house, {"index.interval.bytes": "0", "segment.index.bytes": "70000"})
    for _ in range(5):
        await produce(house.mine, "orders", batch(b"x"))

    assert partition.log.active.offset_index.last_position() > 0
    assert partition.log.config.index_limits == (0, 70_000)


@pytest.mark.parametrize("configs", [{"retention.ms": "1000"}, {"retention.bytes": "0"}])
async def test_retention_goes_by_what_is_set(house: House, configs: dict[str, str]) -> None:
    partition = await in_force(house, configs)
    table = house.broker.broker.table
    now_ms = house.broker.broker.clock.now_ms()

    table.maintain(now_ms + table.settings.retention_interval_ms)

    assert partition.log_start_offset == partition.log_end_offset == 1


async def test_a_deleted_segment_stays_as_long_as_the_topic_says(house: House) -> None:
    partition = await in_force(house, {"file.delete.delay.ms": "0", "retention.bytes": "0"})
    table = house.broker.broker.table
    now_ms = house.broker.broker.clock.now_ms() + table.settings.retention_interval_ms

    table.maintain(now_ms)

    root = house.broker.config.data_dirs[0]
    assert partition.log_start_offset == 1
    assert not list(root.glob(f"{MINE}.orders-0/*.deleted"))


@pytest.mark.parametrize("overrides", [UNBOUND])
@pytest.mark.parametrize("configs", [{"flush.messages": "1"}, {"flush.ms": "0"}])
async def test_a_log_is_flushed_when_the_topic_says(house: House, configs: dict[str, str]) -> None:
    partition = await in_force(house, configs)
    assert partition.log.recovery_point == 0

    # These flushes run every second; the flush of all logs would take half a minute.
    await house.broker.until(lambda: partition.log.recovery_point == 1)


async def test_a_policy_that_changes_is_known_to_the_next_append(house: House) -> None:
    partition = await in_force(house, {"cleanup.policy": "compact"})

    assert partition.config.batch_rules.compacted
    assert (await produce(house.mine, "orders", batch(b"x"))).error_code == ErrorCode.INVALID_RECORD


async def test_old_readers_are_refused_when_the_topic_says_so(house: House) -> None:
    await in_force(house, {"message.downconversion.enable": "false"})

    assert (await fetch(house.mine, "orders", version=3)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await fetch(house.mine, "orders", offset=1, version=3)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await fetch(house.mine, "orders", version=4)).error_code == 0
    assert await replace(house.mine, {}) == 0
    assert (await fetch(house.mine, "orders", version=3)).records
