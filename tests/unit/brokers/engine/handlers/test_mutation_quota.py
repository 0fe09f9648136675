"""A client's rate of changes on the wire: strict and permissive versions, topic by topic (QUO-40…43, KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import metadata_of
from tests.unit.brokers.engine.handlers.asking import wanted_topic as wanted
from tests.unit.brokers.engine.handlers.conftest import MINE, House

RATE = "controller_mutation_rate"
REFUSED = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


async def another(house: House, client_id: str = "test") -> WireClient:
    """Opens a connection that is not muted."""
    return await house.broker.client(house.my_port, client_id=client_id)


async def limit(house: House, per_s: float = 1.0) -> None:
    """Limits every client of `mine`: eleven partitions at once at 1/s."""
    await house.broker.set_quota(MINE, {RATE: str(per_s)}, client_id=None)


async def created(client: WireClient, *partitions: int, version: int = 7, first: int = 0, **more: Any) -> Any:
    topics = [wanted(f"t{number}", count) for number, count in enumerate(partitions, first)]
    return await client.call(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest(topics=topics, **more))


def codes(answer: Any) -> list[int]:
    lines = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
    return [int(line.error_code) for line in lines]


async def test_topics_before_the_limit_are_made_and_those_after_it_are_refused_in_order(house: House) -> None:
    await limit(house)

    answer = await created(await another(house), 10, 5, 1, 1)

    assert codes(answer) == [0, 0, REFUSED, REFUSED]
    assert answer.topics[2].error_message == "The throttling quota has been exceeded."
    assert 3_000 <= answer.throttle_time_ms <= 4_000
    assert [topic.name for topic in (await metadata_of(house.theirs)).topics] == []
    assert sorted(topic.name for topic in (await metadata_of(await another(house, "reader"))).topics) == ["t0", "t1"]
    (entry,) = house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)
    assert entry["rule"] == {"kind": "client_quota", "quota": RATE, "level": 8, "entity": {"client_id": None}}


async def test_a_client_in_debt_is_refused_with_the_time_to_wait(house: House) -> None:
    await limit(house)
    await created(await another(house), 20)

    answer = await created(await another(house), 1, first=1)

    assert codes(answer) == [REFUSED]
    assert 8_000 <= answer.throttle_time_ms <= 9_000


@pytest.mark.parametrize("version", [5, 2])
async def test_permissive_versions_are_done_and_wait_afterwards(house: House, version: int) -> None:
    await limit(house)

    answer = await created(await another(house), 10, 5, 5, version=version)

    assert codes(answer) == [0, 0, 0]
    assert 8_000 <= answer.throttle_time_ms <= 9_000


@pytest.mark.parametrize(("version", "code"), [(3, REFUSED), (2, 0)])
async def test_partitions_that_are_added_are_charged(house: House, version: int, code: int) -> None:
    await house.topic("orders", 2)
    await limit(house)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="orders", count=count, assignments=None) for count in (15,)],
        timeout_ms=5_000,
    )

    first = await (await another(house)).call(ApiKey.CREATE_PARTITIONS, version, request)
    request.topics[0].count = 16
    second = await (await another(house)).call(ApiKey.CREATE_PARTITIONS, version, request)

    assert codes(first) == [0], "thirteen of eleven, which began with tokens left"
    assert codes(second) == [code]
    # A version that can be rejected is, and waits for that; an older version waits after each change.
    waits = [answer.throttle_time_ms > 500 for answer in (first, second)]
    assert waits == [not code, True]


@pytest.mark.parametrize(("version", "code"), [(5, REFUSED), (4, 0)])
async def test_partitions_that_are_deleted_are_charged(house: House, version: int, code: int) -> None:
    await house.topic("many", 14)
    await house.topic("few", 1)
    await limit(house)

    request = DeleteTopicsRequest(topics=[], topic_names=["many", "few"], timeout_ms=5_000)
    answer = await (await another(house)).call(ApiKey.DELETE_TOPICS, version, request)

    assert codes(answer) == [0, code]
    assert answer.throttle_time_ms >= 2_000


async def test_only_checking_costs_nothing_and_waits_for_nothing(house: House) -> None:
    await limit(house)
    await created(await another(house), 20)

    answer = await created(await another(house), 1_000, first=1, validate_only=True)

    assert codes(answer) == [0]
    rules = [entry["rule"]["quota"] for entry in house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)]  # type: ignore[index]
    assert RATE not in rules


async def test_topics_that_cannot_be_made_cost_nothing(house: House) -> None:
    await limit(house)

    answer = await (await another(house)).call(
        ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted("no/topic", 500), wanted("orders", 11)])
    )

    assert codes(answer) == [int(ErrorCode.INVALID_TOPIC_EXCEPTION), 0]
    assert answer.throttle_time_ms == 0


async def test_groups_are_charged_apart_and_the_control_plane_is_not(house: House) -> None:
    await limit(house)
    await created(await another(house, "a"), 30)

    other = await created(await another(house, "b"), 1, first=1)
    console = await created(await house.broker.internal_client(MINE), 1, first=2)

    assert (codes(other), codes(console)) == ([0], [0])


async def test_a_rate_of_zero_refuses_everything(house: House) -> None:
    await limit(house, 0)

    answer = await created(await another(house), 1)

    assert codes(answer) == [REFUSED]
    assert answer.throttle_time_ms == 11_000


async def test_a_raised_rate_counts_at_once(house: House) -> None:
    await limit(house)
    await created(await another(house), 30)
    await limit(house, 1_000)

    answer = await created(await another(house), 1, first=1)

    assert codes(answer) in ([0], [REFUSED])
    assert answer.throttle_time_ms <= 20, "nineteen partitions are owed at a thousand a second"


async def test_topics_made_on_the_way_are_charged_and_never_refused(house: House) -> None:
    await limit(house, 0.1)
    client = await another(house)
    await created(client, 1)

    answer = await metadata_of(await another(house), "found", auto_create=True)
    await house.broker.until(lambda: house.broker.broker.current.image.instances[MINE].topic("found") is not None)
    refused = await created(await another(house), 1, first=1)

    assert codes(answer) == [int(ErrorCode.LEADER_NOT_AVAILABLE)]
    assert codes(refused) == [REFUSED]
