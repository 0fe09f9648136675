"""DescribeClientQuotas and AlterClientQuotas of one instance's users and clients."""

from __future__ import annotations

from time import process_time

import pytest

from brokers.engine.cluster import in_flight_quotas
from brokers.engine.cluster.quota_image import QuotaEntity, QuotaImage
from brokers.engine.handlers.configs.client_quotas import PARTS_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaOperation,
)
from brokers.engine.protocol.messages.quotas import QuotaEntity as Part
from tests.unit.brokers.engine.handlers.asking import quotas_of, set_quota
from tests.unit.brokers.engine.handlers.conftest import House

pytestmark = pytest.mark.usefixtures("administered")


async def test_quotas_are_set_shown_and_removed_within_one_instance(house: House) -> None:
    assert await set_quota(house.mine, {"client-id": "etl"}, "producer_byte_rate", 1000.0) == 0
    assert await set_quota(house.mine, {"user": "u", "client-id": None}, "consumer_byte_rate", 5.0) == 0

    exact = await quotas_of(house.mine, ("client-id", 0, "etl"))
    strict = await quotas_of(house.mine, ("client-id", 2, None), strict=True)
    default = await quotas_of(house.mine, ("client-id", 1, None))

    assert [(value.key, value.value) for value in exact.entries[0].values] == [("producer_byte_rate", 1000.0)]
    assert len(strict.entries) == 1
    assert [part.entity_name for part in default.entries[0].entity] == ["u", None]
    assert (await quotas_of(house.theirs)).entries == []
    assert await set_quota(house.mine, {"client-id": "etl"}, "producer_byte_rate", None) == 0
    assert len((await quotas_of(house.mine)).entries) == 1


async def test_addresses_have_a_limit_of_new_connections_and_none_of_users(house: House) -> None:
    rate = "connection_creation_rate"
    for address, per_s in (("2001:DB8::0:1", 5.0), ("192.0.2.1", 7.0), (None, 9.0)):
        assert await set_quota(house.mine, {"ip": address}, rate, per_s) == 0
    assert await set_quota(house.mine, {"user": "u"}, "producer_byte_rate", 1.0) == 0

    exact = await quotas_of(house.mine, ("ip", 0, "2001:db8:0::1"))
    default = await quotas_of(house.mine, ("ip", 1, None))
    every = await quotas_of(house.mine, ("ip", 2, None), strict=True)

    assert [part.entity_name for part in exact.entries[0].entity] == ["2001:db8::1"]
    assert [(value.key, value.value) for value in exact.entries[0].values] == [(rate, 5.0)]
    assert [part.entity_name for part in default.entries[0].entity] == [None]
    assert [entry.entity[0].entity_name for entry in every.entries] == [None, "192.0.2.1", "2001:db8::1"]
    assert len((await quotas_of(house.mine)).entries) == 4
    assert len((await quotas_of(house.mine, ("user", 2, None))).entries) == 1
    assert (await quotas_of(house.mine, strict=True)).entries == []
    assert (await quotas_of(house.mine, ("ip", 0, "nonsense"))).entries == []
    assert (await quotas_of(house.theirs)).entries == []
    assert await set_quota(house.mine, {"ip": "::ffff:192.0.2.1"}, rate, None) == 0
    assert len((await quotas_of(house.mine, ("ip", 2, None))).entries) == 2


async def test_addresses_count_among_those_an_instance_has_limits_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight_quotas, "QUOTA_ENTITIES_MAX", 2)
    rate = "connection_creation_rate"
    assert await set_quota(house.mine, {"ip": "192.0.2.1"}, rate, 1.0) == 0
    assert await set_quota(house.mine, {"client-id": "a"}, "producer_byte_rate", 1.0) == 0
    assert await set_quota(house.mine, {"ip": "192.0.2.2"}, rate, 1.0) == ErrorCode.POLICY_VIOLATION
    assert await set_quota(house.mine, {"ip": "192.0.2.1"}, rate, None) == 0
    assert await set_quota(house.mine, {"ip": "192.0.2.2"}, rate, 1.0) == 0


async def test_parts_and_changes_of_an_entry_are_limited_and_a_refusal_does_not_repeat_them(house: House) -> None:
    few = [Part(entity_type="client-id", entity_name="etl")]
    many = [Part(entity_type=f"kind-{number}", entity_name="x") for number in range(10_000)]
    limit = QuotaOperation(key="producer_byte_rate", value=1.0, remove=False)
    for entity, operations in ((many, [limit]), (few, [limit] * 10_000)):
        entries = [QuotaAlteration(entity=entity, ops=operations)]
        request = AlterClientQuotasRequest(entries=entries, validate_only=False)
        (entry,) = (await house.mine.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)).entries
        assert (entry.error_code, len(entry.entity)) == (ErrorCode.INVALID_REQUEST, min(len(entity), PARTS_MAX))
    assert (await quotas_of(house.mine)).entries == []


async def test_removing_a_limit_that_does_not_exist_is_no_error(house: House) -> None:
    for key in ("no_such_quota", "producer_byte_rate"):
        assert await set_quota(house.mine, {"user": "u"}, key, None) == 0
    assert (await quotas_of(house.mine)).entries == []


@pytest.mark.parametrize(
    ("parts", "key", "value"),
    [
        ({}, "producer_byte_rate", 1.0),
        ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0),
        ({"group": "g"}, "producer_byte_rate", 1.0),
        ({"user": "u"}, "no_such_quota", 1.0),
        ({"user": "u"}, "producer_byte_rate", 1.5),
        ({"user": "u"}, "connection_creation_rate", 1.0),
        ({"ip": "1.2.3.4", "user": "u"}, "connection_creation_rate", 1.0),
        ({"ip": "1.2.3.4", "client-id": None}, "connection_creation_rate", 1.0),
        ({"ip": "not.an.address"}, "connection_creation_rate", 1.0),
        ({"ip": ""}, "connection_creation_rate", 1.0),
        ({"ip": "1" * 30_000}, "connection_creation_rate", 1.0),
        ({"ip": "1.2.3.4"}, "connection_creation_rate", -1.0),
        ({"ip": "1.2.3.4"}, "connection_creation_rate", 1.5),
        ({"ip": "1.2.3.4"}, "connection_creation_rate", 2.0**31),
    ],
)
async def test_a_quota_that_cannot_be_is_refused(
    house: House, parts: dict[str, str | None], key: str, value: float
) -> None:
    assert await set_quota(house.mine, parts, key, value) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 9, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 0, "1.2.3.4"), ("user", 0, "a")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_that_cannot_be_is_refused(
    house: House, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert (await quotas_of(house.mine, *components)).error_code == code


async def test_quotas_per_instance_are_limited(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight_quotas, "QUOTA_ENTITIES_MAX", 2)
    for name in ("a", "b"):
        assert await set_quota(house.mine, {"client-id": name}, "producer_byte_rate", 1.0) == 0

    assert await set_quota(house.mine, {"client-id": "c"}, "producer_byte_rate", 1.0) == ErrorCode.POLICY_VIOLATION
    assert await set_quota(house.mine, {"client-id": "c"}, "producer_byte_rate", None) == 0
    assert await set_quota(house.mine, {"client-id": "b"}, "producer_byte_rate", 2.0) == 0
    assert await set_quota(house.theirs, {"client-id": "c"}, "producer_byte_rate", 1.0) == 0
    assert await set_quota(house.mine, {"client-id": "a"}, "producer_byte_rate", None) == 0
    assert await set_quota(house.mine, {"client-id": "c"}, "producer_byte_rate", 1.0) == 0


def test_an_image_of_many_limits_is_drawn_at_once() -> None:
    """The metadata is built like this at the start of a broker, and after a lost ZooKeeper session."""
    limits = {("ins-aaaaaaaa", QuotaEntity(False, None, True, str(number))): {"q": 1.0} for number in range(20_000)}

    before_s = process_time()
    image = QuotaImage().with_changes(limits)

    assert len(image.of_instance("ins-aaaaaaaa")) == 20_000
    assert process_time() - before_s < 2, "each limit must not copy all others"
    assert image.with_changes({key: {} for key in limits}).entities == {}
