"""Allow-lists (CKA-11, CKA-12): every call that names a topic checks the list that it requires, on open connections, in
waiting fetches, in open transactions and in long requests, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from brokers.engine.access.authorizer import Operation, peer_address
from brokers.engine.access.principals import tenant_port_principal
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO, message_class
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.topics import DeleteTopicsRequest
from brokers.engine.records.batch import TRANSACTIONAL
from tests.product.system.attacks import filled
from tests.testkit.records import FETCH_VERSION, batch, fetch, fetch_request, produce
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.offsets_asking import commit, coordinator_ready
from tests.unit.brokers.engine.handlers.transactional import Transactional

DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# The second code is that of calls which are reserved for brokers from some version on.
REFUSALS: Final = {int(DENIED), int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}
# Calls that omit topics which they do not show.
SILENT: Final = {ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_TRANSACTIONS}
BY_ID_FROM: Final = {ApiKey.FETCH: 13, ApiKey.METADATA: 12, ApiKey.DELETE_TOPICS: 6}
NOT_US, US = ("203.0.113.7",), ("127.0.0.1",)
LISTS: Final = {
    Operation.PRODUCE: "produce_ips",
    Operation.CONSUME: "consume_ips",
    Operation.ADMINISTER: "administer_ips",
}
ASKING: Final = [
    api_key
    for api_key in ADVERTISED_TENANT
    if API_TABLE[api_key].allow_list.operation is not None and api_key not in SILENT
]


def lists_without(*closed: Operation) -> dict[str, tuple[str, ...]]:
    """Returns lists that admit this client, except for these operations."""
    return {name: NOT_US if operation in closed else US for operation, name in LISTS.items()}


def test_every_api_that_is_served_says_which_list_it_asks() -> None:
    assert API_TABLE.keys() == {int(api_key) for api_key in ADVERTISED_INTERNAL}
    assert all(api.allow_list.explanation for api in API_TABLE.values())


@dataclass(frozen=True)
class Asking:
    """One request of a call in a version, for the topic with this id."""

    api_key: ApiKey
    version: int
    request: Any

    async def codes(self, client: WireClient) -> set[int]:
        """Returns all error codes of the response."""
        return set(_codes(await client.call(self.api_key, self.version, self.request)))


def _codes(message: Any) -> Iterator[int]:
    for name in message.__slots__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else ():
            if hasattr(item, "__slots__"):
                yield from _codes(item)


def asking(api_key: ApiKey, topic_id: bytes) -> Iterator[Asking]:
    cls = message_class(api_key, "request")
    lowest, highest = ADVERTISED_TENANT[api_key]
    for version in range(lowest, highest + 1):
        is_by_id_alone = api_key is ApiKey.FETCH and version >= BY_ID_FROM[api_key]
        if not is_by_id_alone:
            yield Asking(api_key, version, filled(cls, version, "orders", UUID_ZERO))
        if version >= BY_ID_FROM.get(api_key, version + 1):
            yield Asking(api_key, version, filled(cls, version, None, topic_id))


async def a_topic_with_a_group(house: House) -> bytes:
    topic_id = await house.topic()
    await coordinator_ready(house.mine, "orders")
    assert await commit(house.mine, {("orders", 0): 0}, group="orders") == {("orders", 0): 0}
    return topic_id


@pytest.mark.parametrize("api_key", ASKING, ids=lambda api_key: api_key.name.lower())
async def test_a_call_is_refused_by_the_list_that_is_for_it_and_by_no_other(house: House, api_key: ApiKey) -> None:
    """Covers every version, by name and by id."""
    topic_id = await a_topic_with_a_group(house)
    operation = API_TABLE[api_key].allow_list.operation
    closing = list(LISTS) if operation is Operation.DESCRIBE else [operation]
    assert closing[0] is not None

    await house.allow(**lists_without(*(other for other in closing if other is not None)))
    for each in asking(api_key, topic_id):
        assert await each.codes(house.mine) & REFUSALS, each

    await house.allow(**lists_without(*(other for other in LISTS if other not in closing)))
    if operation is Operation.DESCRIBE:
        await house.allow(**lists_without(Operation.PRODUCE, Operation.CONSUME))
    for each in asking(api_key, topic_id):
        codes = await each.codes(house.mine)
        assert DENIED not in codes, each
        if api_key is ApiKey.DELETE_TOPICS and 0 in codes:
            topic_id = await house.topic()


async def test_sizes_are_shown_to_clients_that_may_administer(house: House) -> None:
    await house.topic()

    async def topics(version: int) -> list[str]:
        request = filled(message_class(ApiKey.DESCRIBE_LOG_DIRS, "request"), version, "orders", UUID_ZERO)
        answer = await house.mine.call(ApiKey.DESCRIBE_LOG_DIRS, version, request)
        return [topic.name for result in answer.results for topic in result.topics]

    for version in range(5):
        await house.allow(**lists_without(Operation.PRODUCE, Operation.CONSUME))
        assert await topics(version) == ["orders"]
        await house.allow(**lists_without(Operation.ADMINISTER))
        assert await topics(version) == []


async def test_an_open_transaction_of_who_may_write_no_more_only_ends(house: House) -> None:
    await house.topic()
    await house.topic("shown")
    producer = await Transactional.begin(house.mine, "tx")
    assert await producer.add(("orders", 0), ("shown", 0)) == {("orders", 0): 0, ("shown", 0): 0}

    await house.allow(**lists_without(*LISTS))

    assert await producer.add(("orders", 0)) == {("orders", 0): DENIED}
    described = await producer.describe()
    assert [topic.topic for topic in described.topics] == ["shown"]
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 0}
    records = batch(b"late", attributes=TRANSACTIONAL, **identity)
    late = await produce(house.mine, "orders", records, transactional_id="tx")
    assert late.error_code == DENIED
    assert await producer.end(committed=False) == 0


async def test_a_fetch_that_waits_is_given_nothing_that_came_after_its_list(house: House) -> None:
    await house.topic()
    writer = await house.broker.internal_client(MINE)
    await house.mine.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("orders", max_wait_ms=20_000))
    partition = house.broker.broker.services.storage.table.get(f"{MINE}.orders", 0)
    assert partition is not None
    await house.broker.until(lambda: partition.delayed_operations)

    await house.allow(consume_ips=NOT_US)
    assert (await produce(writer, "orders", batch(b"secret"))).error_code == 0

    answer = await house.mine.receive(ApiKey.FETCH, FETCH_VERSION)
    line = answer.responses[0].partitions[0]
    assert (line.error_code, line.records or b"", line.high_watermark) == (DENIED, b"", -1)


async def test_a_long_call_asks_the_lists_of_the_moment(house: House) -> None:
    """The call continues with its first metadata, but the lists that apply are the current ones."""
    await house.topic()
    services = house.broker.broker.services
    session_view = TenantMetadataView(object(), services.metadata.current.image, tenant_port_principal(MINE))
    call = RequestContext(services, session_view, API_TABLE[ApiKey.DELETE_TOPICS], 6, "", peer_address("127.0.0.1"))
    topic = session_view.namespace.topics[b"orders"]
    assert call.refusal(topic, "orders") == 0

    await house.allow(administer_ips=NOT_US)

    assert call.refusal(topic, "orders") == DENIED


async def test_a_topic_that_is_made_again_keeps_who_may_administer_it(house: House) -> None:
    """Nobody can open a list by deleting its topic."""
    await house.topic()
    await house.allow(administer_ips=NOT_US)
    delete = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=5_000)
    owner = await house.broker.internal_client(MINE)
    assert (await owner.call(ApiKey.DELETE_TOPICS, 4, delete)).responses[0].error_code == 0

    await house.topic()

    assert (await house.mine.call(ApiKey.DELETE_TOPICS, 4, delete)).responses[0].error_code == DENIED


async def test_metadata_says_what_an_address_may_do(house: House) -> None:
    topic_id = await house.topic()

    async def operations() -> set[int]:
        topics = [MetadataRequestTopic(name="orders", topic_id=UUID_ZERO)]
        request = MetadataRequest(topics=topics, include_topic_authorized_operations=True)
        bits = (await house.mine.call(ApiKey.METADATA, 12, request)).topics[0].topic_authorized_operations
        return {operation for operation in range(16) if bits >> operation & 1}

    assert await operations() == {3, 4, 5, 6, 7, 8, 10, 11}
    await house.allow(**lists_without(Operation.CONSUME, Operation.ADMINISTER))
    assert await operations() == {4, 8, 10}
    await house.allow(**lists_without(*LISTS))
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    answer = await house.mine.call(ApiKey.METADATA, 12, by_id)
    assert (answer.topics[0].error_code, answer.topics[0].name, answer.topics[0].partitions) == (DENIED, None, [])
    assert b"orders" not in encode_response(ApiKey.METADATA, 12, answer)


async def test_a_closed_topic_is_open_again_within_a_second(house: House) -> None:
    await house.topic()
    await house.allow(consume_ips=NOT_US)
    assert (await fetch(house.mine, "orders")).error_code == DENIED
    async with asyncio.timeout(1):
        await house.allow(consume_ips=())
        assert (await fetch(house.mine, "orders")).error_code == 0
