"""Stored bytes are charged to an instance's produce bandwidth, however few bytes the request had."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from brokers.engine.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from brokers.engine.records.compression import GZIP
from tests.testkit.records import batch, produce_request
from tests.unit.brokers.engine.handlers.conftest import MINE, House

MB = 1_000_000
TOPIC, SET = 2, 0


async def test_batch_that_is_stored_uncompressed_is_charged_as_it_is_stored(house: House) -> None:
    await house.broker.update_instance(MINE, produce_bps=100_000)
    await house.topic(compression_type="uncompressed")
    small = batch(bytes(900_000), codec=GZIP)
    assert len(small) < 2_000

    answer = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", small))

    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms > 5_000


async def create(house: House, name: str, message_bytes: int) -> tuple[int, str | None]:
    config = CreatableTopicConfig(name="max.message.bytes", value=str(message_bytes))
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[config])
    answer = await house.mine.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
    return answer.topics[0].error_code, answer.topics[0].error_message


async def alter(house: House, name: str, config: str, value: str) -> tuple[int, str | None]:
    change = IncrementalAlterableConfig(name=config, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await house.mine.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    return answer.responses[0].error_code, answer.responses[0].error_message


async def test_largest_batch_of_a_topic_is_capped_by_the_instance(house: House) -> None:
    await house.topic("older", max_message_bytes=str(50 * MB))
    await house.broker.update_instance(MINE, message_bytes_max=2 * MB)

    code, message = await create(house, "large", 2 * MB + 1)
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None and "2000000" in message
    assert (await create(house, "fits", 2 * MB))[0] == 0
    assert (await alter(house, "fits", "max.message.bytes", str(3 * MB)))[0] == ErrorCode.INVALID_CONFIG
    assert (await alter(house, "older", "retention.ms", "1000"))[0] == 0, "what was set before stands in nobody's way"
