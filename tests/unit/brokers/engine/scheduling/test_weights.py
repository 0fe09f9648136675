"""Weights follow the bandwidth of instances, within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.loop_weights import TENANT_WEIGHT_MAX
from brokers.engine.scheduling.weights import (
    INSTANCE_WEIGHT_MAX,
    INSTANCE_WEIGHT_MIN,
    LoopWeights,
    weight_of,
)

MB = 1_000_000
rates = st.integers(0, 10**12)
NAMES = ("a", "b", "c")


def test_weights_are_proportional_to_bandwidth_between_the_bounds() -> None:
    assert weight_of(20 * MB, 20 * MB) == 4 * weight_of(5 * MB, 5 * MB)
    assert weight_of(5 * MB, 20 * MB) == weight_of(20 * MB, 5 * MB), "the greater direction counts"
    assert (weight_of(0, 0), weight_of(MB, MB)) == (INSTANCE_WEIGHT_MIN, INSTANCE_WEIGHT_MIN)
    assert weight_of(10**12, 0) == INSTANCE_WEIGHT_MAX


@given(rates, rates, rates)
def test_more_bandwidth_never_weighs_less_and_all_weights_are_within_bounds(bps: int, more: int, other: int) -> None:
    assert INSTANCE_WEIGHT_MIN <= weight_of(bps, other) <= weight_of(bps + more, other) <= INSTANCE_WEIGHT_MAX


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.floats(0.03, 1.0) | st.none())))
def test_a_tenant_weighs_what_its_instances_do_and_nothing_is_kept_of_those_that_went(
    steps: list[tuple[str, str, float | None]],
) -> None:
    weights, expected = LoopWeights(), dict[str, tuple[str, float]]()
    for instance_id, tenant_id, weight in steps:
        if weight is None:
            weights.remove(instance_id)
            expected.pop(instance_id, None)
        else:
            weights.set(instance_id, tenant_id, weight)
            expected[instance_id] = tenant_id, weight
    for instance_id in NAMES:
        _, due = expected.get(instance_id, ("", INSTANCE_WEIGHT_MAX))
        assert weights.instance_weight(instance_id) == due
    for tenant_id in NAMES:
        members = [weight for owner, weight in expected.values() if owner == tenant_id]
        due = min(sum(members), TENANT_WEIGHT_MAX * max(members)) if members else INSTANCE_WEIGHT_MAX
        assert abs(weights.tenant_weight(tenant_id) - due) < 1e-9
    assert set(weights._weights_by_tenant) == {tenant_id for tenant_id, _ in expected.values()}


def test_the_instances_of_a_tenant_are_siblings() -> None:
    weights = LoopWeights()
    for instance_id, tenant_id in (("a", "one"), ("b", "one"), ("c", "two")):
        weights.set(instance_id, tenant_id, 1.0)
    assert sorted(weights.tenant_instances("a")) == ["a", "b"]
    assert sorted(weights.tenant_instances("c")) == ["c"]
    weights.set("b", "two", 1.0)
    assert sorted(weights.tenant_instances("b")) == ["b", "c"]
    assert list(weights.tenant_instances("unknown")) == ["unknown"]
