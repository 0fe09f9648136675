"""Effects of `compat.profile` (DEC-1, DEC-18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.compatibility import CONSUMER_DEFAULT_KEY, PRODUCER_DEFAULT_KEY, client_id_defaults, with_profile
from brokers.engine.controller import policy
from brokers.engine.errors import SettingsWrong
from brokers.engine.protocol.apis import ApiKey
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, produce_request

INSTANCE = "ins-aaaaaaaa"
SEED = {"compat.profile": "seed"}


def test_the_profile_lets_replicas_lead_that_lost_records_and_a_brokers_own_word_goes_first() -> None:
    assert policy.from_overrides(with_profile(SEED)).unclean_allowed
    assert not policy.from_overrides(with_profile({**SEED, policy.UNCLEAN_KEY: "false"})).unclean_allowed
    assert not policy.from_overrides(with_profile({})).unclean_allowed


def test_defaults_of_client_ids_are_known_with_the_profile_only() -> None:
    keys = {PRODUCER_DEFAULT_KEY: "1048576", CONSUMER_DEFAULT_KEY: str(2**63 - 1)}
    assert client_id_defaults(keys) == {}
    assert client_id_defaults(SEED | keys) == {"producer_byte_rate": 1_048_576.0}


@pytest.mark.parametrize("value", ["0", "-1", "many", str(2**63)])
def test_a_default_that_cannot_be_is_refused_at_the_start(value: str) -> None:
    with pytest.raises(SettingsWrong, match=PRODUCER_DEFAULT_KEY):
        client_id_defaults(SEED | {PRODUCER_DEFAULT_KEY: value})


def test_an_unknown_profile_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsWrong, match="profile"):
        with_profile({"compat.profile": "old"})


async def test_a_client_of_a_tenant_is_held_to_the_default_and_its_own_quota_goes_before_it(tmp_path: Path) -> None:
    overrides = {**SEED, PRODUCER_DEFAULT_KEY: "1000", "quota.burst.ms": "-1"}
    async with InProcessBroker(tmp_path, overrides=overrides) as broker:
        port = await broker.create_instance(INSTANCE)
        first, second = await broker.client(port, "first"), await broker.client(port, "second")
        await broker.create_topic(first, "orders")
        request = produce_request("orders", batch(b"x" * 20_000))

        held = await first.call(ApiKey.PRODUCE, 9, request)
        await broker.set_quota(INSTANCE, {"producer_byte_rate": "1000000000"}, client_id="second")
        free = await second.call(ApiKey.PRODUCE, 9, request)

        assert held.throttle_time_ms > 10_000
        assert free.throttle_time_ms == 0
        (entry,) = broker.broker.accountings.get_or_create(INSTANCE).ledger.as_json(0)
        assert (entry["rule"]["level"], entry["client_id"]) == (None, "first")
