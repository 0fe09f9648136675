"""CKA-27…33, CKA-38, CKA-39, CKA-41…44: the allocation table, its sequences and its conservation laws."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.allocation import Mode, allocate

MB30 = 31_457_280
TABLE = {
    "E1": (90, [1, 1, 1], [0, 0, 0], [30, 30, 30], [30, 30, 30]),
    "E2": (100, [2, 1, 1], [39, 19, 19], [50, 25, 25], [50, 25, 25]),
    "E3": (100, [2, 1, 1], [40, 19, 19], [46, 27, 27], [51, 29, 29]),
    "E4": (100, [2, 1, 1], [40, 20, 20], [46, 27, 27], [50, 30, 30]),
    "E5": (300, [1, 1, 1], [100, 90, 85], [109, 98, 93], [109, 98, 93]),
    "E6": (300, [1, 1, 1], [100, 80, 80], [116, 92, 92], [116, 92, 92]),
    "E7": (300, [1, 1, 1], [100, 80, 79], [107, 97, 96], [115, 104, 103]),
    "E8": (300, [1, 1, 1], [100, 80, 60], [115, 104, 81], [125, 112, 87]),
    "E9": (90, [1, 1, 1], [60, 0, 0], [75, 8, 7], [90, 9, 9]),
    "E10": (1000, [3, 1], [700, 100], [805, 195], [875, 212]),
    "E11": (50, [4], [49], [50], [50]),
    "E12": (50, [4], [10], [50], [50]),
    "E13": (100, [2, 0, 2], [60, 0, 10], [79, 0, 21], [85, 0, 22]),
    "E14": (100, [1, 1, 1], [0, 0, 0], [34, 33, 33], [34, 33, 33]),
    "E15": (100, [1, 1], [90, 70], [53, 47], [56, 49]),
    "E16": (200, [1, 1, 1, 1], [100, 95, 95, 60], [54, 54, 54, 38], [57, 57, 57, 40]),
    "E17": (MB30, [1, 1, 1], [20971520, 1048576, 1048576], [24197908, 3629686, 3629686], [28597527, 4289629, 4289629]),
    "E18": (10, [0, 0], [0, 0], [0, 0], [0, 0]),
    "E19": (2, [1, 1, 1], [0, 0, 0], [1, 1, 0], [1, 1, 0]),
}


@pytest.mark.parametrize("row", TABLE)
def test_the_table_holds_in_both_modes(row: str) -> None:
    quota, leaders, flows, normalised, literal = TABLE[row]

    assert allocate(quota, leaders, flows) == normalised
    assert allocate(quota, leaders, flows, "literal") == literal


@pytest.mark.parametrize("row", TABLE)
def test_static_mode_is_the_second_step_alone(row: str) -> None:
    quota, leaders, _, _, _ = TABLE[row]
    idle = allocate(quota, leaders, [0] * len(leaders), "static")

    assert allocate(quota, leaders, [quota] * len(leaders), "static") == idle
    assert allocate(quota, leaders, [0] * len(leaders)) == idle


def _follow(mode: Mode, quota: int, flows: list[int], demand: int, rounds: int) -> list[list[int]]:
    shares = [allocate(quota, [1, 1, 1], flows, mode)]
    for _ in range(rounds - 1):
        flows = [min(demand, share) for share in shares[-1]]
        shares.append(allocate(quota, [1, 1, 1], flows, mode))
    return shares


def test_a_skewed_load_is_led_back_to_balance_step_by_step() -> None:
    assert _follow("normalised", 90, [75, 7, 7], 60, 8) == [
        [65, 13, 12], [56, 17, 17], [50, 20, 20], [45, 23, 22], [41, 25, 24], [37, 27, 26], [34, 28, 28], [34, 28, 28],
    ]  # fmt: skip


def test_taken_literally_the_text_promises_too_much_for_a_while() -> None:
    assert _follow("literal", 90, [90, 9, 9], 90, 9) == [
        [75, 15, 15], [64, 19, 19], [56, 22, 22], [50, 24, 24], [45, 26, 26], [41, 28, 28], [38, 29, 29],
        [35, 30, 30], [33, 29, 28],
    ]  # fmt: skip


def test_a_dead_broker_leaves_its_share_to_the_others_at_once() -> None:
    assert allocate(60, [2, 2, 2], [0, 0, 0]) == [20, 20, 20]
    assert allocate(60, [3, 3, 0], [0, 0, 0]) == [30, 30, 0]


def test_a_silent_brokers_share_is_reserved_and_the_rest_shared() -> None:
    assert allocate(90 - 28, [1, 1], [30, 10]) == [43, 19]


def test_static_mode_never_looks_at_flows() -> None:
    assert allocate(100, [2, 1, 1], [90, 0, 0], "static") == [50, 25, 25]


@pytest.mark.parametrize(
    ("quota", "leaders", "flows", "mode"),
    [(10, [1], [1, 2], "static"), (-1, [1], [1], "static"), (1, [-1], [1], "static"), (1, [1], [-1], "static"),
     (1, [1], [1], "fair")],
)  # fmt: skip
def test_impossible_input_is_refused(quota: int, leaders: list[int], flows: list[int], mode: Mode) -> None:
    with pytest.raises(ValueError, match=r"."):
        allocate(quota, leaders, flows, mode)


def _naive(quota: int, leaders: list[int], flows: list[int]) -> list[Fraction]:
    """Returns the five steps in fractions, before rounding."""
    members = [b for b, count in enumerate(leaders) if count]
    shares = [Fraction(0)] * len(leaders)
    if not members or not quota:
        return shares
    part = {b: Fraction(quota * leaders[b], sum(leaders)) for b in members}
    if all(flows[b] < Fraction(8, 10) * part[b] for b in members):
        weights = part
    else:
        total = sum(flows[b] for b in members)
        weights = {b: Fraction(flows[b], total) for b in members}
        largest = max(weights.values())
        if min(weights.values()) / largest < Fraction(8, 10):
            weights = {b: min(w + largest / 10, largest) for b, w in weights.items()}
    for b in members:
        shares[b] = quota * weights[b] / sum(weights.values())
    return shares


brokers = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 12), min_size=n, max_size=n), st.lists(st.integers(0, 10**9), min_size=n, max_size=n)
    )
)


@settings(max_examples=500)
@given(quota=st.integers(0, 10**10), case=brokers)
def test_shares_sum_up_to_what_was_bought_and_follow_the_five_steps(
    quota: int, case: tuple[list[int], list[int]]
) -> None:
    leaders, flows = case
    shares = allocate(quota, leaders, flows)

    if any(leaders):
        assert sum(shares) == quota
    assert all(share >= 0 for share in shares)
    assert all(share == 0 for share, count in zip(shares, leaders, strict=True) if not count)
    members = sum(1 for count in leaders if count)
    if quota >= members:
        assert all(share >= 1 for share, count in zip(shares, leaders, strict=True) if count)
    slack = 1 + members
    assert all(abs(share - exact) <= slack for share, exact in zip(shares, _naive(quota, leaders, flows), strict=True))


def test_weighted_a_load_in_proportion_to_partitions_is_balanced() -> None:
    """CKA-31: E4 is 5a, and a broker with twice the partitions may have twice the flow."""
    assert allocate(100, [2, 1, 1], [40, 20, 20], "weighted") == [50, 25, 25]
    assert allocate(100, [2, 1, 1], [50, 20, 25], "weighted") == [53, 21, 26], "80 % of the flow of a partition"
    assert allocate(1000, [3, 1], [700, 100], "weighted") == [850, 150]
    for row in ("E3", "E7", "E9", "E15", "E16", "E17"):
        quota, leaders, flows, normalised, _ = TABLE[row]
        if len(set(leaders)) == 1:
            assert allocate(quota, leaders, flows, "weighted") == normalised, "equal partitions are no weights"


def _naively_weighted(quota: int, leaders: list[int], flows: list[int]) -> list[Fraction]:
    """The steps with P/F instead of P, in fractions, before rounding."""
    members = [b for b, count in enumerate(leaders) if count]
    shares = [Fraction(0)] * len(leaders)
    if not members or not quota:
        return shares
    part = {b: Fraction(quota * leaders[b], sum(leaders)) for b in members}
    weights = part
    if any(flows[b] >= Fraction(8, 10) * part[b] for b in members):
        ratios = {b: Fraction(flows[b]) / part[b] for b in members}
        largest = max(ratios.values())
        if min(ratios.values()) / largest < Fraction(8, 10):
            ratios = {b: min(ratio + largest / 10, largest) for b, ratio in ratios.items()}
        weights = {b: ratios[b] * part[b] for b in members}
    for b in members:
        shares[b] = quota * weights[b] / sum(weights.values())
    return shares


@settings(max_examples=300)
@given(quota=st.integers(0, 10**10), case=brokers)
def test_weighted_shares_sum_up_to_what_was_bought_and_compare_partitions(
    quota: int, case: tuple[list[int], list[int]]
) -> None:
    leaders, flows = case
    shares = allocate(quota, leaders, flows, "weighted")
    members = sum(1 for count in leaders if count)
    if members:
        assert sum(shares) == quota
    slack = 1 + members
    exact = _naively_weighted(quota, leaders, flows)
    assert all(abs(share - wanted) <= slack for share, wanted in zip(shares, exact, strict=True))


@settings(max_examples=300)
@given(quota=st.integers(0, 10**10), case=brokers)
def test_taken_literally_the_text_promises_too_much_up_to_a_bound(
    quota: int, case: tuple[list[int], list[int]]
) -> None:
    """CKA-31: at most a tenth of the busiest one's part for each of the others."""
    leaders, flows = case
    shares = allocate(quota, leaders, flows, "literal")
    seen = [flow for flow, count in zip(flows, leaders, strict=True) if count]

    most = 1 + Fraction(max(seen) * (len(seen) - 1), 10 * sum(seen)) if any(seen) else Fraction(1)
    assert sum(shares) <= quota * most


@settings(max_examples=300)
@given(quota=st.integers(10, 10**9), case=brokers, scale=st.integers(2, 50), data=st.data())
def test_order_and_unit_of_measure_do_not_matter(
    quota: int, case: tuple[list[int], list[int]], scale: int, data: st.DataObject
) -> None:
    leaders, flows = case
    order = data.draw(st.permutations(range(len(leaders))))
    shares = allocate(quota, leaders, flows)
    shuffled = allocate(quota, [leaders[i] for i in order], [flows[i] for i in order])
    assert all(abs(shuffled[place] - shares[i]) <= 1 for place, i in enumerate(order))

    members = [b for b, count in enumerate(leaders) if count]
    all_busy = members and all(5 * flows[b] * sum(leaders) >= 4 * quota * leaders[b] for b in members)
    if all_busy:
        assert allocate(quota, leaders, [flow * scale for flow in flows]) == shares
        busiest = max(members, key=lambda b: flows[b])
        assert all(shares[busiest] >= shares[b] - 1 for b in members)
