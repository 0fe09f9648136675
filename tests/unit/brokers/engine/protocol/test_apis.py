"""The table of APIs, the versions that each listener advertises, and error codes in old versions."""

from __future__ import annotations

import pytest

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import (
    ADVERTISED_INTERNAL,
    ADVERTISED_SASL,
    ADVERTISED_TENANT,
    APIS,
    ApiKey,
    has_throttle_time,
    is_served,
)
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.fields import fields_of, message_class


@pytest.mark.parametrize(
    "advertised", [ADVERTISED_TENANT, ADVERTISED_SASL, ADVERTISED_INTERNAL], ids=["tenant", "sasl", "internal"]
)
def test_every_advertised_version_has_a_codec(advertised: dict[ApiKey, tuple[int, int]]) -> None:
    assert list(advertised) == sorted(advertised)
    for api_key, (first, last) in advertised.items():
        for version in range(first, last + 1):
            message = message_class(api_key, "response")()
            body = codec.encode_response(api_key, version, message)
            assert codec.decode_response(api_key, version, body) == message


def test_a_tenant_is_offered_neither_authentication_nor_the_place_of_replicas() -> None:
    assert set(ADVERTISED_INTERNAL) - set(ADVERTISED_TENANT) == {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALLOT_STORAGE,
        ApiKey.DESCRIBE_USERS,
        ApiKey.ALTER_USERS,
        ApiKey.REPORT_FLOW,
        ApiKey.CHARGE_POOLS,
    }


def test_a_route_that_asks_who_is_there_serves_a_tenants_calls_and_those_of_authentication() -> None:
    assert set(ADVERTISED_SASL) - set(ADVERTISED_TENANT) == {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert ADVERTISED_SASL.items() >= ADVERTISED_TENANT.items()


def test_calls_that_read_and_write_records_are_served_from_version_0() -> None:
    """Old librdkafka would not compress if Produce began at a later version (KAFKA-18659)."""
    assert ADVERTISED_TENANT[ApiKey.PRODUCE] == (0, 11)
    assert ADVERTISED_TENANT[ApiKey.FETCH] == (0, 17)
    assert ADVERTISED_TENANT[ApiKey.LIST_OFFSETS] == (0, 9)


def test_a_call_is_served_in_the_advertised_versions_and_api_versions_in_any() -> None:
    """WIRE-10, WIRE-15."""
    assert is_served(ADVERTISED_TENANT, ApiKey.CREATE_TOPICS, 2)
    assert not is_served(ADVERTISED_TENANT, ApiKey.CREATE_TOPICS, 1)
    assert not is_served(ADVERTISED_TENANT, ApiKey.FETCH, 18)
    assert not is_served(ADVERTISED_TENANT, ApiKey.SASL_HANDSHAKE, 1)
    assert not is_served(ADVERTISED_TENANT, 999, 0)
    assert is_served(ADVERTISED_TENANT, ApiKey.API_VERSIONS, 99)


@pytest.mark.parametrize("api_key", sorted(APIS))
def test_the_throttle_column_is_the_first_version_with_the_field(api_key: int) -> None:
    fields = {name: spec for name, spec, _ in fields_of(message_class(api_key, "response"))}
    spec = fields.get("throttle_time_ms")
    for version in range(APIS[api_key].version_max + 1):
        assert has_throttle_time(api_key, version) == (spec is not None and spec.exists(version))


@pytest.mark.parametrize(
    ("error", "api_key", "version", "sent"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.PRODUCE, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.PRODUCE, 4, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.FETCH, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.FETCH, 6, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.OFFSET_NOT_AVAILABLE, ApiKey.LIST_OFFSETS, 4, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.OFFSET_NOT_AVAILABLE, ApiKey.LIST_OFFSETS, 5, ErrorCode.OFFSET_NOT_AVAILABLE),
        (ErrorCode.PRODUCER_FENCED, ApiKey.INIT_PRODUCER_ID, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, ApiKey.INIT_PRODUCER_ID, 4, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.PRODUCER_FENCED, ApiKey.END_TXN, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, ApiKey.END_TXN, 2, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.PRODUCER_FENCED, ApiKey.PRODUCE, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NONE, ApiKey.PRODUCE, 3, ErrorCode.NONE),
    ],
)
def test_an_error_unknown_to_an_old_version_becomes_one_it_knows(
    error: ErrorCode, api_key: ApiKey, version: int, sent: ErrorCode
) -> None:
    """WIRE-26."""
    assert downgraded(error, api_key, version) == sent
