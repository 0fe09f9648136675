"""Shares by policy, also with brokers that do not report."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.adaptive import Demand
from quotas.allocation import allocate
from quotas.policies import DEFAULT_POLICY, POLICIES, Policy, share_out, share_out_among

DEMANDS = [Demand(1, 30, 30), Demand(1, 10, 10), Demand(1, 0, 0)]


@pytest.mark.parametrize("policy", ["static", "literal", "normalised", "weighted"])
def test_policies_of_ckafka_are_the_five_steps(policy: Policy) -> None:
    assert share_out(policy, 90, DEMANDS, [0, 0, 0]) == allocate(90, [1, 1, 1], [30, 10, 0], policy)


def test_the_default_follows_what_had_to_wait() -> None:
    waiting = [Demand(1, 30, 60), Demand(1, 10, 10), Demand(1, 0, 0)]

    assert DEFAULT_POLICY in POLICIES
    assert share_out(DEFAULT_POLICY, 90, waiting, [30, 30, 30])[0] > 60


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="mode"):
        share_out("fair", 90, DEMANDS, [0, 0, 0])  # type: ignore[arg-type]


def test_a_silent_brokers_share_is_reserved_and_the_rest_shared() -> None:
    """CKA-44."""
    assert share_out_among("normalised", 90, DEMANDS, [34, 28, 28], [None, None, 28]) == [43, 19, 28]


def test_a_dead_broker_leaves_its_share_to_the_others_at_once() -> None:
    """CKA-43."""
    leaders = [Demand(3, 0, 0), Demand(3, 0, 0), Demand(0, 0, 0)]

    assert share_out_among("normalised", 60, leaders, [20, 20, 20], [None, None, None]) == [30, 30, 0]


def test_more_may_be_reserved_than_is_bought_now() -> None:
    assert share_out_among("adaptive", 20, DEMANDS, [34, 28, 28], [None, None, 28]) == [0, 0, 28]
    assert share_out_among("adaptive", 20, DEMANDS, [5, 5, 10], [5, 5, 10]) == [5, 5, 10]


@pytest.mark.parametrize(
    ("before", "reserved"), [([1, 2], [None, None, None]), ([1, 2, 3], [None, None]), ([1, 2, 3], [None, None, -1])]
)
def test_impossible_input_is_refused(before: list[int], reserved: list[int | None]) -> None:
    with pytest.raises(ValueError, match="reserved"):
        share_out_among("adaptive", 90, DEMANDS, before, reserved)


@given(
    policy=st.sampled_from(sorted(get_args(Policy))),
    bought=st.integers(0, 10**9),
    brokers=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 10**9), st.integers(0, 10**9), st.booleans()), max_size=8
    ),
)
def test_silent_brokers_keep_their_share_and_the_sum_is_never_above_what_was_bought(
    policy: Policy, bought: int, brokers: list[tuple[int, int, int, bool]]
) -> None:
    leaders = [count for count, _, _, _ in brokers]
    demands = [Demand(count, admitted, admitted + waited) for count, admitted, waited, _ in brokers]
    before = share_out("static", bought, demands, [0] * len(brokers))
    reserved = [share if is_silent else None for share, (*_, is_silent) in zip(before, brokers, strict=True)]

    shares = share_out_among(policy, bought, demands, before, reserved)

    assert all(share == kept for share, kept in zip(shares, reserved, strict=True) if kept is not None)
    if policy != "literal":
        reporting = sum(count for count, kept in zip(leaders, reserved, strict=True) if kept is None)
        assert sum(shares) == (bought if reporting else sum(share for share in reserved if share is not None))
