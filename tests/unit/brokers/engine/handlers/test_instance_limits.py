"""Limits of what one instance may store in ZooKeeper, as its owner meets them through the Kafka protocol."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.contract import instance_limits
from brokers.engine.cluster import in_flight_quotas
from brokers.engine.handlers import zookeeper_change
from brokers.engine.handlers.topics import metadata
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaOperation,
)
from brokers.engine.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from brokers.engine.throttling.request_time import ChangeRate
from tests.unit.brokers.engine.handlers.asking import alter, config_of, create, metadata_of, quotas_of, set_quota
from tests.unit.brokers.engine.handlers.asking import wanted_topic as wanted
from tests.unit.brokers.engine.handlers.conftest import MINE, House

RATE = "producer_byte_rate"
# No burst, and a change every 100 s.
SLOW = {"per_s": 0.01, "burst": 0.0}


async def set_many(house: House, names: list[str]) -> list[Any]:
    """Sends one request with a limit for each of these client ids."""
    entries = [
        QuotaAlteration(
            entity=[QuotaEntity(entity_type="client-id", entity_name=name)],
            ops=[QuotaOperation(key=RATE, value=1.0, remove=False)],
        )
        for name in names
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=False)
    return list((await house.mine.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)).entries)


def slow_down(house: House) -> None:
    accounting = house.broker.broker.accountings.get_or_create(MINE)
    accounting.change_rate = ChangeRate(**SLOW)
    accounting.change_rate.charge(1, house.broker.broker.clock.monotonic_ms())


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("x" * instance_limits.QUOTA_NAME_BYTES_MAX, 0),
        ("x" * (instance_limits.QUOTA_NAME_BYTES_MAX + 1), ErrorCode.INVALID_REQUEST),
        ("水" * 28, 0),  # nine bytes each
        ("水" * 29, ErrorCode.INVALID_REQUEST),
        ("x" * 12_000, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.usefixtures("administered")
async def test_the_name_of_a_client_quota_is_measured_as_zookeeper_keeps_it(house: House, name: str, code: int) -> None:
    assert await set_quota(house.mine, {"client-id": name}, RATE, 1.0) == code
    assert len((await quotas_of(house.mine)).entries) == (0 if code else 1)


@pytest.mark.usefixtures("administered")
async def test_one_request_makes_as_many_client_quotas_as_the_instance_may_have(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is in the metadata when the next one is checked."""
    monkeypatch.setattr(in_flight_quotas, "QUOTA_ENTITIES_MAX", 5)

    entries = await set_many(house, [f"client-{number}" for number in range(8)])

    assert [entry.error_code for entry in entries] == [0] * 5 + [ErrorCode.POLICY_VIOLATION] * 3
    assert "5 users and clients already" in entries[-1].error_message
    assert len((await quotas_of(house.mine)).entries) == 5


@pytest.mark.usefixtures("administered")
async def test_client_quotas_weigh_no_more_than_they_may(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight_quotas, "QUOTA_BYTES_MAX", 1_100)

    entries = await set_many(house, ["a" * 200, "b" * 200, "c" * 200, "d"])

    assert [entry.error_code for entry in entries] == [0, 0, ErrorCode.POLICY_VIOLATION, 0]
    assert "more than 1100 bytes" in entries[2].error_message
    stored_bytes = house.broker.broker.current.image.quotas.stored_bytes
    assert 0 < stored_bytes[MINE] <= 1_100
    for name in ("a" * 200, "b" * 200, "d"):
        assert await set_quota(house.mine, {"client-id": name}, RATE, None) == 0
    assert house.broker.broker.current.image.quotas.stored_bytes[MINE] == 0


async def test_a_value_of_a_configuration_is_measured_as_it_is_written(house: House) -> None:
    """JSON escapes some characters, which then take six bytes each."""
    await house.topic()

    assert await alter(house, ("cleanup.policy", 0, "水" * 200)) == ErrorCode.INVALID_CONFIG
    assert await alter(house, ("cleanup.policy", 0, "," * 2_000)) == ErrorCode.INVALID_CONFIG
    (refused,) = await create(house.mine, wanted("new", compression_type="x" * 2_000))

    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "more than 1024 bytes" in refused.error_message
    assert (await config_of(house.mine, "orders", "cleanup.policy")).configs[0].value == "delete"


async def test_topics_with_the_longest_names_end_at_what_the_plan_lets_documents_weigh(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_limits, "DOCUMENT_BYTES_BASE", 0)
    monkeypatch.setattr(instance_limits, "DOCUMENT_BYTES_PER_PARTITION", 700)
    await house.broker.update_instance(MINE, partitions_max=10)

    answers = await create(house.mine, *(wanted(f"{number}" + "x" * 240) for number in range(6)))

    codes = [answer.error_code for answer in answers]
    assert codes == [0, 0, 0] + [ErrorCode.POLICY_VIOLATION] * 3
    assert "more than 7000 bytes" in answers[-1].error_message
    assert await alter(house, ("retention.ms", 0, "1000"), name="0" + "x" * 240) == 0


@pytest.mark.parametrize(("version", "code"), [(7, ErrorCode.THROTTLING_QUOTA_EXCEEDED), (5, 7)])
async def test_a_client_that_changes_too_much_gets_an_error_code_its_version_knows(
    house: House, version: int, code: int
) -> None:
    """Topics before the limit are created, and those after it are not (QUO-41)."""
    slow_down(house)

    (refused,) = await create(house.mine, wanted("late"), version=version)

    assert refused.error_code == code
    assert "try again in" in (refused.error_message or "")
    assert (await metadata_of(house.mine)).topics == []
    assert (await create(house.theirs, wanted("theirs")))[0].error_code == 0


async def test_only_checking_costs_nothing(house: House) -> None:
    """QUO-43."""
    slow_down(house)

    (checked,) = await create(house.mine, wanted("orders", 1_000), validate_only=True)

    assert checked.error_code == 0


async def test_the_answer_says_how_long_the_next_change_has_to_wait(house: House) -> None:
    accounting = house.broker.broker.accountings.get_or_create(MINE)
    accounting.change_rate = ChangeRate(per_s=1, burst=1)

    request = CreateTopicsRequest(topics=[wanted("orders", 21)])
    answer = await house.mine.call(ApiKey.CREATE_TOPICS, 7, request)

    assert answer.topics[0].error_code == 0
    assert 10_000 <= answer.throttle_time_ms <= 20_000
    assert [entry["rule"]["kind"] for entry in accounting.ledger.as_json(0)] == ["change_rate"]


@pytest.mark.usefixtures("administered")
async def test_configs_quotas_and_deletions_are_charged_as_well(house: House) -> None:
    await house.topic("orders")
    slow_down(house)

    assert await alter(house, ("retention.ms", 0, "1000")) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await set_quota(house.mine, {"client-id": "a"}, RATE, 1.0) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    request = DeleteTopicsRequest(topics=[], topic_names=["orders"], timeout_ms=1_000)
    answer = await house.mine.call(ApiKey.DELETE_TOPICS, 5, request)
    assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert [topic.name for topic in (await metadata_of(house.mine)).topics] == ["orders"]


async def test_topics_without_leaders_let_the_next_ones_of_the_instance_wait(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_change, "PARTITIONS_UNFINISHED_MAX", 4)
    creations = house.broker.broker.store.in_flight_creations
    most = 0

    def watch(*_: object) -> None:
        nonlocal most
        most = max(most, creations.partitions(MINE))

    house.broker.broker.current.subscribe(watch)
    answers = await create(house.mine, *(wanted(f"t{number}", 2) for number in range(12)))

    assert [answer.error_code for answer in answers] == [0] * 12
    assert 0 < most <= 4


async def test_automatic_topics_of_one_instance_leave_room_for_those_of_another(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "AUTO_CREATIONS_PER_INSTANCE_MAX", 3)
    names = [f"t{number}" for number in range(6)]

    mine = await metadata_of(house.mine, *names, auto_create=True)
    theirs = await metadata_of(house.theirs, "one", auto_create=True)

    codes = [topic.error_code for topic in mine.topics]
    assert codes == [ErrorCode.LEADER_NOT_AVAILABLE] * 3 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert theirs.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
