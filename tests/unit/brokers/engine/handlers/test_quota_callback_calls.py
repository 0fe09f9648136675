"""A quota callback in a serving broker: it is called for every request, and its failure fails none (QUO-76)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from brokers.engine.config import QUOTA_CALLBACK
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.topics import CreateTopicsRequest
from brokers.engine.throttling import quota_callback
from tests.testkit.records import batch, produce_request
from tests.unit.brokers.engine.handlers.asking import metadata_of, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, House

LIMITS = {"producer_byte_rate": 1_000.0, "request_percentage": 0.0, "controller_mutation_rate": 0.0}


class ByClient:
    """A callback that derives a client's limit from its client id."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        pass

    def quota_tags(self, quota: str, instance_id: str, user: str, client_id: str) -> Mapping[str, str] | None:
        if client_id == "broken":
            raise RuntimeError("nobody knows")
        return {"client": client_id} if client_id == quota else None

    def quota_limit(self, quota: str, instance_id: str, tags: Mapping[str, str]) -> float | None:
        return LIMITS[quota]


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    installed = EntryPoints([EntryPoint("by-client", f"{__name__}:ByClient", quota_callback.GROUP)])
    monkeypatch.setattr(quota_callback, "entry_points", lambda **wanted: installed.select(**wanted))
    return {QUOTA_CALLBACK: "by-client", "quota.burst.ms": "-1"}


async def test_bytes_time_and_changes_are_limited_as_it_says(house: House) -> None:
    await house.topic()
    clients = {name: await house.broker.client(house.my_port, client_id=name) for name in (*LIMITS, "broken")}

    produced = {
        name: await client.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 20_000)))
        for name, client in clients.items()
        if name != "request_percentage"
    }
    asked = await metadata_of(clients["request_percentage"], "orders")
    request = CreateTopicsRequest(topics=[wanted_topic("new")])
    created = await clients["controller_mutation_rate"].call(ApiKey.CREATE_TOPICS, 7, request)

    assert produced["producer_byte_rate"].throttle_time_ms > 9_000
    assert produced["broken"].throttle_time_ms == produced["controller_mutation_rate"].throttle_time_ms == 0
    assert asked.throttle_time_ms == 1_000
    assert created.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    rules = [entry["rule"] for entry in house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)]
    assert {rule["quota"] for rule in rules} == set(LIMITS)  # type: ignore[index]
    assert {rule["level"] for rule in rules} == {None}  # type: ignore[index]
