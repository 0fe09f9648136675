"""A client quota limits all brokers together; it is split by partitions, a bounded number of limits by demand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.throttling.accounting import InstanceAccounting
from brokers.engine.throttling.charging import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Limiter
from brokers.engine.throttling.client_shares import CONSUME, KEYS_MAX, PRODUCE, SHARED_BPS_MIN, share_key
from brokers.engine.throttling.layout import Layout, static_part
from quotas.precedence import Entity

ANY_CLIENT = Entity(False, None, True, None)
LIMIT = 900_000.0
THREE = Layout.from_leaders({1: 1, 2: 1, 3: 1}, None, "adaptive")
DIGEST_CHARACTERS = 32


def accounting(layout: Layout = THREE) -> InstanceAccounting:
    result = InstanceAccounting()
    result.client_shares.update(1, layout, 0)
    return result


def limiter(made: InstanceAccounting, client_id: str = "a", limit: float = LIMIT) -> Limiter:
    result = made.client_quotas.limiter(
        {ANY_CLIENT: {PRODUCER_BYTE_RATE: limit}}, PRODUCER_BYTE_RATE, "u", client_id, 0
    )
    assert result is not None
    return result


def test_a_limit_is_split_by_partitions_and_the_limiter_knows_the_whole() -> None:
    client_limiter = limiter(accounting())
    assert (client_limiter.limit_per_s, client_limiter.whole_limit_per_s) == (LIMIT / 3, LIMIT)


def test_where_it_holds_on_each_broker_it_is_not_split() -> None:
    client_limiter = limiter(accounting(Layout.from_leaders({1: 1, 2: 1, 3: 1}, None, "adaptive", is_shared=False)))
    assert (client_limiter.limit_per_s, client_limiter.whole_limit_per_s) == (LIMIT, LIMIT)


def test_a_broker_that_leads_everything_has_the_whole_limit() -> None:
    assert limiter(accounting(Layout.from_leaders({1: 4}, None, "adaptive"))).limit_per_s == LIMIT


@given(st.floats(0.001, 1e12), st.dictionaries(st.integers(1, 6), st.integers(0, 50), min_size=1))
def test_parts_are_something_where_the_limit_is_and_never_more_together(limit: float, leaders: dict[int, int]) -> None:
    layout = Layout.from_leaders(leaders)
    parts = [static_part(limit, layout, broker) for broker in layout.leaders]
    assert sum(parts) <= limit * (1 + 1e-9)
    assert all(part > 0 for part in parts)
    assert static_part(limit, layout, 99) > 0
    assert static_part(0, layout, min(leaders)) == 0


def test_where_followers_are_read_a_consumers_limit_is_split_by_replicas() -> None:
    made = InstanceAccounting()
    made.client_shares.update(2, Layout.from_leaders({1: 3}, None, "adaptive"), 0, THREE)
    consumed = made.client_quotas.limiter({ANY_CLIENT: {CONSUMER_BYTE_RATE: LIMIT}}, CONSUMER_BYTE_RATE, "u", "a", 0)
    assert consumed is not None
    assert consumed.limit_per_s == LIMIT / 3
    made.client_shares.on_delay(consumed, 1)
    ((direction, _),) = made.client_shares.flows
    assert direction == CONSUME
    made.client_shares.update(2, Layout.from_leaders({1: 3}, None, "adaptive"), 2)
    assert not made.client_shares.flows, "consumers read at the leaders again"


def test_nobody_hears_of_a_limit_that_holds_nobody_back() -> None:
    made = accounting()
    limiter(made)
    assert not made.client_shares.flows


def test_a_limit_that_holds_somebody_back_is_shared_out_and_the_answer_is_in_force() -> None:
    made = accounting()
    client_limiter = limiter(made)
    made.client_shares.on_delay(client_limiter, 0)
    ((key, flow),) = list(made.client_shares)
    assert key == (PRODUCE, share_key("", "a"))
    flow.apply_answer(THREE.basis(int(LIMIT)), 800_000, False, 10, 10)
    assert client_limiter.limit_per_s == 800_000
    assert limiter(made) is client_limiter
    assert client_limiter.limit_per_s == 800_000, "whoever asks for it again finds it as it was given"


def test_an_answer_about_clients_that_never_came_here_waits_for_them() -> None:
    made = accounting()
    key = (PRODUCE, share_key("", "a"))
    flow = made.client_shares.share_for_answer(key, int(LIMIT), THREE.basis(int(LIMIT)), 0)
    assert flow is not None
    flow.apply_answer(THREE.basis(int(LIMIT)), 10_000, False, 10, 10)
    assert limiter(made).limit_per_s == 10_000


def test_another_layout_or_limit_is_split_by_partitions_again() -> None:
    made = accounting()
    client_limiter = limiter(made)
    made.client_shares.on_delay(client_limiter, 0)
    (flow,) = made.client_shares.flows.values()
    flow.apply_answer(THREE.basis(int(LIMIT)), 800_000, False, 10, 10)
    made.client_shares.update(1, Layout.from_leaders({1: 1, 2: 2}, None, "adaptive"), 20)
    assert client_limiter.limit_per_s == LIMIT / 3
    assert limiter(made, limit=300.0).limit_per_s == 100


def test_invented_client_ids_take_no_more_than_the_places_there_are() -> None:
    made = accounting()
    for number in range(KEYS_MAX + 20):
        client_limiter = limiter(made, f"client-{number}")
        made.client_shares.on_delay(client_limiter, 0)
        flow = made.client_shares.flows.get((PRODUCE, client_limiter.share_key))
        if flow is not None:
            flow.wanted_bps = 1
    assert len(made.client_shares.flows) == KEYS_MAX
    next(iter(made.client_shares.flows.values())).wanted_bps = 0
    made.client_shares.on_delay(limiter(made, "another"), 0)
    assert (PRODUCE, share_key("", "another")) in made.client_shares.flows, "in the place of an idle one"
    assert len(made.client_shares.flows) == KEYS_MAX


def test_a_limit_of_next_to_nothing_stays_split() -> None:
    made = accounting()
    made.client_shares.on_delay(limiter(made, limit=SHARED_BPS_MIN - 1), 0)
    assert not made.client_shares.flows


def test_names_are_digests_of_one_size_that_tell_groups_apart() -> None:
    pairs = [("", ""), ("a", ""), ("", "a"), ("a", "b"), ("ab", ""), ("1:a", "b"), ("u" * 10_000, "c" * 10_000)]
    keys = [share_key(user, client_id) for user, client_id in pairs]
    assert len(set(keys)) == len(pairs)
    assert {len(key) for key in keys} == {DIGEST_CHARACTERS}


def test_other_quotas_hold_on_each_broker() -> None:
    made = accounting()
    client_limiter = made.client_quotas.limiter(
        {ANY_CLIENT: {CONSUMER_BYTE_RATE: LIMIT}}, CONSUMER_BYTE_RATE, "u", "a", 0
    )
    assert client_limiter is not None
    assert client_limiter.limit_per_s == LIMIT / 3
    made.client_shares.apply("request_percentage", ("request_percentage", "u", "a"), client_limiter, 25.0, 0)
    assert client_limiter.limit_per_s == client_limiter.whole_limit_per_s == 25.0
