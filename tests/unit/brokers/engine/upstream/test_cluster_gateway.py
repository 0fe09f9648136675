"""Decisions of a gateway of a cluster: its calls, and how the bandwidth of an instance is divided."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from brokers.contract import gateway_calls
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.upstream.cluster_gateway import GatewayBandwidth
from brokers.engine.upstream.versions import ADMINISTERED_INTERNALLY, OWN_WITH_SASL, REVIEWED


def test_the_control_plane_knows_the_calls_that_gateways_answer_themselves() -> None:
    assert {*ADMINISTERED_INTERNALLY, *OWN_WITH_SASL} == gateway_calls.ANSWERED


def test_calls_of_the_control_plane_are_forwarded_in_their_version() -> None:
    for api_key, version in gateway_calls.FORWARDED.items():
        low, high = REVIEWED[ApiKey(api_key)]
        assert low <= version <= high, api_key


def test_the_bandwidth_of_an_instance_is_divided_equally_among_its_gateways() -> None:
    bandwidth = GatewayBandwidth(cast(Any, None), selects_by_rack=False)
    instance = SimpleNamespace(document=SimpleNamespace(endpoints={1: "a:1", 5: "b:1"}))
    totals = bandwidth.totals_of(cast(Any, instance))
    assert (totals.leaders, totals.replicas, totals.moves) == (Counter({1: 1, 5: 1}), Counter(), 0)
