"""The policy `adaptive`: sequences as tables, and properties for every instance: shares within the limit, no
starvation, fast response to waiting clients, stable under constant demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quotas.adaptive import ESTIMATE_FACTOR, FLOOR_DENOMINATOR, Demand, adapt
from quotas.allocation import allocate

MB20 = 20_000_000
# Upper bound of the estimated demand, as a multiple of the admitted bytes.
WANTED_FACTOR_MAX = 16
Estimate = Callable[[float], float]


def _true(wanted: float) -> float:
    return wanted


def seen(wants: Sequence[int], shares: Sequence[int], estimate: Estimate = _true) -> list[Demand]:
    """Returns the reports of brokers that lead one partition each and whose clients demanded these bytes."""
    return [report(1, wanted, share, estimate) for wanted, share in zip(wants, shares, strict=True)]


def report(leaders: int, wanted: int, share: int, estimate: Estimate) -> Demand:
    if wanted <= share:
        return Demand(leaders, wanted, wanted)
    guess = min(max(int(estimate(wanted)), share), WANTED_FACTOR_MAX * share)
    return Demand(leaders, share, guess)


def followed(bought: int, intervals: Sequence[Sequence[int]], start: list[int] | None = None) -> list[list[int]]:
    """Returns the shares after each interval, starting at the parts by partitions."""
    shares = start or allocate(bought, [1] * len(intervals[0]), [0] * len(intervals[0]), "static")
    result = []
    for wants in intervals:
        shares = adapt(bought, seen(wants, shares), shares)
        result.append(shares)
    return result


IDLE, HOT = [0, 0, 0], [1800, 0, 0]
# 900 are bought. What clients of three brokers want in each interval, and the shares after it.
SEQUENCES: dict[str, tuple[list[list[int]], list[list[int]]]] = {
    "idle": ([IDLE] * 2, [[300, 300, 300]] * 2),
    "hot": ([HOT] * 3, [[880, 10, 10]] * 3),
    "hot, then idle": ([HOT, IDLE, IDLE, IDLE], [[880, 10, 10], [808, 46, 46], [744, 78, 78], [688, 106, 106]]),
    "hot beside light": ([[1800, 100, 100]] * 2, [[688, 106, 106]] * 2),
    "the hot spot moves": ([HOT, [0, 1800, 0], [0, 1800, 0]], [[880, 10, 10], [11, 878, 11], [10, 880, 10]]),
    "a second one": ([HOT, [1800, 1800, 0], [1800, 1800, 0]], [[880, 10, 10], [720, 170, 10], [445, 445, 10]]),
    "all want more": ([[1800, 1800, 1800]] * 2, [[300, 300, 300]] * 2),
    "half of it fits": ([[500, 0, 0]] * 3, [[878, 11, 11], [849, 26, 25], [824, 38, 38]]),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_sequences_hold(name: str) -> None:
    wants, shares = SEQUENCES[name]

    assert followed(900, wants) == shares


def test_bandwidth_never_shared_out_is_divided_by_partitions() -> None:
    assert adapt(100, [Demand(2, 0, 0), Demand(0, 0, 0), Demand(1, 0, 0), Demand(1, 0, 0)], [0] * 4) == [50, 0, 25, 25]
    assert adapt(100, [Demand(0, 50, 90), Demand(1, 0, 0)], [50, 50]) == [0, 100], "who leads nothing has no part"
    assert adapt(100, [Demand(0, 0, 0)], [0]) == [0]
    assert adapt(0, [Demand(1, 5, 9)], [0]) == [0]
    assert adapt(100, [], []) == []


def test_shares_of_another_layout_or_another_purchase_are_no_obstacle() -> None:
    idle = [Demand(1, 0, 0), Demand(1, 0, 0)]

    assert adapt(200, idle, [97, 3]) == [182, 18], "as if they were of the new purchase"
    assert adapt(50, idle, [97, 3]) == [25, 25]
    assert adapt(100, [*idle, Demand(2, 0, 0)], [97, 3, 0]) == [25, 25, 50]


def test_bandwidth_given_up_and_not_taken_goes_to_the_broker_that_waits() -> None:
    """The flow master raises a share once all others have reported theirs lowered."""
    waiting = [Demand(1, 0, 0), Demand(1, 133_334, 2_000_000), Demand(1, 0, 0)]

    assert adapt(MB20, waiting, [133_334, 133_334, 133_334])[1] >= 0.95 * MB20


@pytest.mark.parametrize(
    ("bought", "demands", "before"),
    [(10, [Demand(1, 0, 0)], []), (-1, [Demand(1, 0, 0)], [0]), (1, [Demand(-1, 0, 0)], [0]),
     (1, [Demand(1, -1, 0)], [0]), (1, [Demand(1, 0, -1)], [0]), (1, [Demand(1, 0, 0)], [-1])],
)  # fmt: skip
def test_impossible_input_is_refused(bought: int, demands: list[Demand], before: list[int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        adapt(bought, demands, before)


@pytest.mark.parametrize("wanted", [MB20, 4 * MB20])
@pytest.mark.parametrize("brokers", [2, 3, 8, 20])
@pytest.mark.parametrize("estimate", [_true, lambda wanted: wanted / 2, lambda wanted: 0], ids=["true", "half", "none"])
def test_one_hot_partition_has_95_percent_after_three_intervals(brokers: int, wanted: int, estimate: Estimate) -> None:
    shares = allocate(MB20, [1] * brokers, [0] * brokers, "static")
    for _ in range(3):
        shares = adapt(MB20, seen([wanted] + [0] * (brokers - 1), shares, estimate), shares)

    assert shares[0] >= 0.95 * MB20


def test_a_partition_is_hot_at_once_where_another_one_was() -> None:
    shares = followed(MB20, [[2 * MB20, 0, 0]] * 3)[-1]

    assert adapt(MB20, seen([0, 2 * MB20, 0], shares), shares)[1] >= 0.95 * MB20


def test_a_broker_that_stops_within_an_interval_keeps_its_part_by_partitions_at_most() -> None:
    """Its earlier demand does not predict the coming one."""
    shares = followed(MB20, [[2 * MB20, 0, 0]] * 3)[-1]
    leaving, beginning = Demand(1, 6_500_000, 10_200_000), Demand(1, 600_000, 2_000_000)

    assert adapt(MB20, [leaving, beginning, Demand(1, 0, 0)], shares) == [6_666_668, 13_111_108, 222_224]


def test_a_broker_that_sends_one_large_request_at_a_time_is_not_taken_for_idle() -> None:
    """An interval may admit nothing of it, and the next one nearly all."""
    shares = followed(MB20, [[2 * MB20, 0, 0]] * 3)[-1]
    waiting = Demand(1, 0, 500_000)

    assert adapt(MB20, [Demand(1, shares[0], 2 * MB20), waiting, Demand(1, 0, 0)], shares)[1] >= 500_000


def test_a_pause_keeps_most_of_a_share_and_a_minute_nothing_of_it() -> None:
    shares = followed(MB20, [[2 * MB20, 0, 0]] * 3 + [[0, 0, 0]] * 60)

    assert shares[3][0] > 0.85 * MB20
    assert shares[8][0] > 0.6 * MB20
    assert shares[42] == shares[-1] == [6_666_667, 6_666_667, 6_666_666]


members = st.integers(1, 8).flatmap(
    lambda count: st.tuples(
        st.lists(
            st.tuples(st.integers(0, 12), st.integers(0, 10**9), st.integers(0, 10**9)), min_size=count, max_size=count
        ),
        st.lists(st.integers(0, 10**9), min_size=count, max_size=count),
    )
)
Case = tuple[list[tuple[int, int, int]], list[int]]


def demands_of(case: Case) -> list[Demand]:
    return [Demand(leaders, admitted, admitted + waited) for leaders, admitted, waited in case[0]]


@settings(max_examples=500)
@given(bought=st.integers(0, 10**10), case=members, is_divided=st.booleans())
def test_the_bought_bandwidth_is_shared_out_to_the_byte_and_nobody_is_starved(
    bought: int, case: Case, is_divided: bool
) -> None:
    demands = demands_of(case)
    leaders = [demand.leaders for demand in demands]
    before = allocate(bought, leaders, case[1]) if is_divided else case[1]
    shares = adapt(bought, demands, before)
    parts = allocate(bought, leaders, [0] * len(leaders), "static")
    count = sum(1 for count in leaders if count)

    assert sum(shares) == (bought if count else 0)
    for share, part, demand in zip(shares, parts, demands, strict=True):
        if not demand.leaders:
            assert share == 0
            continue
        assert share >= min(1, part)
        assert share >= part // FLOOR_DENOMINATOR
        assert share >= min(demand.wanted_bps, part) - count - 1, "what it wants, up to its part by partitions"


@settings(max_examples=300)
@given(bought=st.integers(10**5, 10**9), case=members, data=st.data())
def test_the_order_of_brokers_does_not_matter(bought: int, case: Case, data: st.DataObject) -> None:
    demands = demands_of(case)
    leaders = [demand.leaders for demand in demands]
    before = allocate(bought, leaders, case[1])
    order = data.draw(st.permutations(range(len(demands))))

    shares = adapt(bought, demands, before)
    shuffled = adapt(bought, [demands[i] for i in order], [before[i] for i in order])

    assert all(abs(shuffled[place] - shares[i]) <= len(order) + 1 for place, i in enumerate(order))


wants_and_errors = st.integers(1, 6).flatmap(
    lambda count: st.tuples(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3_000_000)), min_size=count, max_size=count),
        st.lists(st.floats(1 / ESTIMATE_FACTOR, ESTIMATE_FACTOR), min_size=60, max_size=60),
    )
)


def under_constant_demand(
    bought: int, wants: list[tuple[int, int]], errors: list[float], before: list[int]
) -> Iterator[list[int]]:
    shares = before
    for error in errors:
        demands = [
            report(leaders, wanted, share, lambda wanted, error=error: wanted * error)  # type: ignore[misc]
            for (leaders, wanted), share in zip(wants, shares, strict=True)
        ]
        shares = adapt(bought, demands, shares)
        yield shares


# The first uses all but all of its part: it and the last, which wants more than its part, must not take turns.
TURNS = ([(1, 138_394), (4, 0), (4, 0), (4, 0), (4, 138_230), (4, 887_582)], [1.0] * 60)


@settings(max_examples=300)
@example(case=TURNS, flows=[119_995, 0, 0, 0, 69_821, 92_537])
@given(case=wants_and_errors, flows=st.lists(st.integers(0, 10**6), min_size=6, max_size=6))
def test_constant_demand_is_served_and_leads_to_constant_shares(
    case: tuple[list[tuple[int, int]], list[float]], flows: list[int]
) -> None:
    """For any error of the estimates within its bound."""
    bought, (wants, errors) = 3_000_000, case
    before = allocate(bought, [leaders for leaders, _ in wants], flows[: len(wants)])
    shares = list(under_constant_demand(bought, wants, errors, before))

    used = sum(min(wanted, share) for (_, wanted), share in zip(wants, shares[-1], strict=True))
    assert used >= 0.9 * min(bought, sum(wanted for _, wanted in wants))
    for share, later in zip(shares[45], shares[-1], strict=True):
        assert abs(share - later) <= bought / 64


@settings(max_examples=200)
@given(case=members, bought=st.integers(100, 10**9))
def test_an_idle_instance_goes_back_to_the_parts_by_partitions(case: Case, bought: int) -> None:
    leaders = [leaders for leaders, _, _ in case[0]]
    shares = adapt(bought, demands_of(case), [0] * len(leaders))
    idle = [Demand(count, 0, 0) for count in leaders]
    for _ in range(40):
        shares = adapt(bought, idle, shares)

    assert shares == allocate(bought, leaders, [0] * len(leaders), "static")
