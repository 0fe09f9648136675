"""Charging, the ledger, the traffic ring and the usage counters, without a socket (QUO-3, QUO-7, QUO-8, QUO-20,
CKA-27).
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.usage import NAME_CHARACTERS_MAX, OTHER, USAGE_KEYS_PER_INSTANCE_MAX, ReportHead
from brokers.engine.throttling import charging, ledger, traffic
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.charging import ClientQuotas, Limiter, Rule, charge, charge_fetch, fetch_cap_bytes
from brokers.engine.throttling.layout import Layout
from brokers.engine.throttling.ledger import Ledger
from brokers.engine.throttling.shares import InstanceShares
from brokers.engine.throttling.traffic import Traffic
from brokers.engine.throttling.usage import (
    COUNTERS_PER_PART_MAX,
    VALUES_PER_PART_MAX,
    UsageAccounting,
    UsageReport,
    reports,
)
from quotas.pacing import Pace
from quotas.precedence import Entity

PRODUCE = charging.PRODUCER_BYTE_RATE
RULE = Rule("client_quota", PRODUCE, 8, Entity(False, None, True, None))
ANY_CLIENT = Entity(False, None, True, None)
USER = Entity(True, "u", False, None)


def test_clients_of_one_group_share_a_limiter_and_others_do_not() -> None:
    quotas = ClientQuotas()
    limits = {USER: {PRODUCE: 10.0}}

    first, second = (quotas.limiter(limits, PRODUCE, "u", client, 0) for client in ("a", "b"))

    assert first is second
    assert quotas.limiter(limits, PRODUCE, "v", "a", 0) is None


def test_a_changed_limit_keeps_what_was_counted() -> None:
    quotas = ClientQuotas()
    before = quotas.limiter({ANY_CLIENT: {PRODUCE: 10.0}}, PRODUCE, "u", "a", 0)
    assert before is not None
    before.rate.record(1_000, 0)

    after = quotas.limiter({ANY_CLIENT: {PRODUCE: 99.0}}, PRODUCE, "u", "a", 0)

    assert after is before
    assert (after.limit_per_s, after.rate.total) == (99.0, 1_000)


def test_a_limit_set_too_low_by_mistake_is_over_when_it_is_put_right() -> None:
    quotas, shares = ClientQuotas(250), InstanceShares(250)
    shares.update(1, Layout.from_leaders({1: 1}), 1, 1, 0)
    strict = quotas.limiter({ANY_CLIENT: {PRODUCE: 1.0}}, PRODUCE, "u", "a", 0)
    assert strict is not None
    assert shares.produce is not None
    assert charge((strict, shares.produce), 1_000_000, 0)[0] > 900_000_000

    shares.update(1, Layout.from_leaders({1: 1}), 10_000_000, 10_000_000, 1)
    mild = quotas.limiter({ANY_CLIENT: {PRODUCE: 10_000_000.0}}, PRODUCE, "u", "a", 1)

    assert mild is strict
    assert charge((mild, shares.produce), 1_000, 1)[0] < 200


def test_unused_counters_go_after_an_hour() -> None:
    quotas = ClientQuotas()
    quotas.limiter({ANY_CLIENT: {PRODUCE: 10.0}}, PRODUCE, "u", "a", 0)

    assert quotas.drop_unused(charging.UNUSED_MS_MAX - 1) == 0
    assert quotas.drop_unused(charging.UNUSED_MS_MAX) == 1


def test_invented_client_ids_end_up_in_one_counter() -> None:
    quotas = ClientQuotas()
    limits = {ANY_CLIENT: {PRODUCE: 10.0}}

    limiters = [
        quotas.limiter(limits, PRODUCE, "u", str(number), 0) for number in range(charging.LIMITERS_PER_INSTANCE_MAX + 5)
    ]

    assert len(quotas) == charging.LIMITERS_PER_INSTANCE_MAX + 1
    assert limiters[-1] is limiters[-2]


def test_client_ids_that_readers_cannot_tell_apart_share_a_usage_counter() -> None:
    accounting = UsageAccounting()
    long = "x" * NAME_CHARACTERS_MAX

    cut = [accounting.counter("orders", "u", long + ending, "produce") for ending in ("", "1", "2" * 30_000)]
    replaced = [accounting.counter("orders", "u", name, "produce") for name in ("a\x00", "a\ufffd")]

    assert cut[0] is cut[1] is cut[2]
    assert replaced[0] is replaced[1]
    assert [len(key[2]) for key in (cut[0].key, replaced[0].key)] == [NAME_CHARACTERS_MAX, 2]


def test_a_long_client_id_is_remembered_in_short_and_limited_for_itself() -> None:
    quotas, accounting = ClientQuotas(), Ledger()
    limits = {ANY_CLIENT: {PRODUCE: 10.0}}
    first, second, again = (quotas.limiter(limits, PRODUCE, "u", "x" * 32_000 + end, 0) for end in ("1", "2", "1"))

    accounting.record(RULE, 10.0, "u", "x" * 32_000, 1, 0)

    assert first is again
    assert first is not second
    assert max(len(part) for key in quotas._limiters for part in key) <= NAME_CHARACTERS_MAX
    assert len(str(accounting.as_json(0)[0]["client_id"])) == NAME_CHARACTERS_MAX


def test_the_longest_delay_counts_and_names_its_limiter() -> None:
    mild, strict = Limiter(RULE, 10_000, 0), Limiter(RULE, 100, 0)

    delay_ms, worst = charge((mild, strict), 5_000, 0)

    assert (delay_ms, worst) == (40_000, strict)
    assert fetch_cap_bytes((mild, strict), 10**9) == 1_000


def test_a_response_that_must_wait_is_counted_nowhere() -> None:
    mild, strict = Limiter(RULE, 10_000, 0, Pace()), Limiter(RULE, 100, 0)

    assert charge_fetch([(mild, 5_000), (strict, 5_000)], 0) == (40_000, strict)
    assert charge((mild, strict), 0, 0) == (0, None)
    assert charge_fetch([(mild, 1_000), (strict, 1_000)], 0) == (0, None)
    assert charge((mild, strict), 1, 0)[1] is strict


def test_a_paced_response_may_run_into_debt_and_the_next_one_pays() -> None:
    paced = Limiter(RULE, 1_000, 0, Pace(250))

    assert fetch_cap_bytes((paced,), 10**9) == 1_000
    assert charge_fetch([(paced, 1_000)], 0) == (0, None)
    assert charge_fetch([(paced, 1_000)], 0) == (750, paced)
    assert charge_fetch([(paced, 1_000)], 750) == (0, None)


def test_a_paced_response_worth_more_than_the_window_is_sent_and_paid_afterwards() -> None:
    """A batch may exceed ten seconds of its topic's limit; withheld, it would never arrive."""
    paced = Limiter(RULE, 30_000, 0, Pace(250))

    assert charge_fetch([(paced, 600_000)], 0) == (0, None)
    delay_ms, limiter = charge_fetch([(paced, 1_000)], 0)
    assert (delay_ms, limiter) == (19_750, paced)


def test_a_response_that_waits_for_something_else_is_counted_nowhere() -> None:
    paced = Limiter(RULE, 1_000, 0, Pace(0))

    assert charge_fetch([(paced, 5_000)], 0, is_delayed=True) == (0, None)
    assert paced.debt_ms(0) == 0
    assert paced.admitted_bytes == 0


def test_a_broker_gets_its_part_of_the_bandwidth_by_the_partitions_it_leads() -> None:
    shares = InstanceShares()

    shares.update(2, Layout.from_leaders({1: 2, 2: 1, 3: 1}), 100, 200, 0)
    assert shares.produce is not None
    assert shares.consume is not None
    assert (shares.produce.limit_per_s, shares.consume.limit_per_s) == (25, 50)
    before = shares.produce
    shares.update(2, Layout.from_leaders({2: 1}), 100, 200, 0)
    assert shares.produce is before
    assert before.limit_per_s == 100
    shares.update(2, Layout.from_leaders({1: 1}), 100, 200, 0)
    assert before.limit_per_s == 50, "requests that it refuses count as if it were one more that leads"
    assert shares.flows == ()


def test_where_followers_are_read_each_replica_has_a_part_of_what_consumers_may_read() -> None:
    leaders, replicas = (
        Layout.from_leaders({1: 3}, None, "adaptive"),
        Layout.from_leaders({1: 3, 2: 3, 3: 3}, None, "adaptive"),
    )
    made = {broker: InstanceShares() for broker in (1, 2, 3, 4)}
    for broker, shares in made.items():
        shares.update(broker, leaders, 90, 90, 0, replicas)
    limits = {broker: (shares.produce, shares.consume) for broker, shares in made.items()}
    assert [consume.limit_per_s for _, consume in limits.values() if consume is not None] == [30, 30, 30, 22]
    assert [produce.limit_per_s for produce, _ in limits.values() if produce is not None] == [90, 45, 45, 45]
    assert [flow is None for flow in made[2].flows] == [True, False]
    assert made[4].flows == ()
    made[2].update(2, leaders, 90, 90, 1)
    assert made[2].flows == ()
    assert not made[2].reads_followers


def test_the_ledger_sums_per_rule_and_client_and_knows_what_is_active() -> None:
    kept = Ledger()
    for delay_ms in range(1, 101):
        kept.record(RULE, 1_000, "u", "a", delay_ms, now_ms=5_000)
    kept.record(RULE, 1_000, "u", "b", 7, now_ms=6_000)

    latest, first = kept.as_json(now_ms=5_050)

    assert (latest["client_id"], first["client_id"]) == ("b", "a")
    assert (first["count"], first["delay_ms_mean"], first["delay_ms_max"]) == (100, 50.5, 100)
    assert (first["delay_ms_p95"], first["waited_ms_total"], first["active"]) == (96, 5_050, True)
    assert kept.as_json(now_ms=5_100)[1]["active"] is False
    json.dumps(latest)


def test_a_full_ledger_forgets_whom_nothing_was_heard_of_longest() -> None:
    kept = Ledger()
    for number in range(ledger.ENTRIES_MAX + 1):
        kept.record(RULE, 1, "u", str(number), 1, now_ms=number)

    assert len(kept) == ledger.ENTRIES_MAX
    assert kept.as_json(0)[-1]["client_id"] == "1"


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["in", "out"]), st.integers(1, 10**6)), max_size=50))
def test_the_traffic_ring_adds_up_second_by_second(events: list[tuple[int, str, int]]) -> None:
    ring, now_ms, expected = Traffic(), 1_000_000, {}
    for wait_s, direction, count in events:
        now_ms += wait_s * 1_000
        row = expected.setdefault(now_ms // 1_000 * 1_000, [0, 0])
        if direction == "in":
            ring.add_produced(count, now_ms)
            row[0] += count
        else:
            ring.add_consumed(count, now_ms)
            row[1] += count

    assert {point[0]: point[1:3] for point in ring.points(0, now_ms)} == expected


def test_the_traffic_ring_keeps_fifteen_minutes() -> None:
    ring = Traffic()
    for second in range(1, traffic.SECONDS_KEPT + 100):
        ring.add_produced(1, second * 1_000)
    ring.record_delay(40, (traffic.SECONDS_KEPT + 99) * 1_000)
    now_ms = (traffic.SECONDS_KEPT + 99) * 1_000

    points = ring.points(0, now_ms)

    assert traffic.SECONDS_KEPT <= len(points) <= traffic.SECONDS_KEPT + 1
    assert points == sorted(points)
    assert points[-1] == [now_ms, 1, 0, 40]
    assert len(ring.points(now_ms - 5_000, now_ms)) == 6


def test_the_longest_delay_of_each_minute_is_kept_for_a_quarter_of_an_hour() -> None:
    ring = Traffic()
    for minute in range(1, 31):
        for delay_ms in (5, minute * 10, 7):
            ring.record_delay(delay_ms, minute * traffic.MINUTE_MS + delay_ms)
    now_ms = 30 * traffic.MINUTE_MS + 30_000
    result = ring.delayed_minutes(now_ms)
    assert result == [[minute * traffic.MINUTE_MS, minute * 10] for minute in range(16, 31)]
    assert ring.delayed_minutes(now_ms + 60 * traffic.MINUTE_MS) == []


def test_a_report_repeats_until_it_is_confirmed_and_then_says_only_what_changed() -> None:
    accounting = UsageAccounting()
    accounting.counter("t", "u", "c", "produce").add(100)

    def report(sequence: int) -> UsageReport:
        (made,) = reports({"ins-x": accounting}, ReportHead(1, 9, sequence, 5))
        return made

    first, again = report(1), report(2)
    accounting.counter("t", "u", "c", "produce").add(50)
    again.confirm()
    rest = report(3)
    rest.confirm()

    assert [value.bytes for value in (*first.values, *again.values, *rest.values)] == [100, 100, 150]
    assert list(reports({"ins-x": accounting}, ReportHead(1, 9, 4, 5))) == []


def test_a_report_comes_in_parts_and_what_is_counted_meanwhile_is_in_one_of_them_or_in_the_next_report() -> None:
    accountings = {name: UsageAccounting() for name in ("ins-x", "ins-y")}
    for accounting in accountings.values():
        for number in range(VALUES_PER_PART_MAX + 50):
            accounting.counter("t", "u", str(number), "produce").add(1)
    sent: dict[tuple[str, str], int] = {}
    parts = 0

    for number, part in enumerate(reports(accountings, ReportHead(1, 9, 1, 5))):
        parts += 1
        assert len(part.values) <= VALUES_PER_PART_MAX
        part.confirm()
        sent |= {(value.instance_id, value.client_id): value.bytes for value in part.values}
        accountings["ins-x"].counter("t", "u", "0", "produce").add(1)
        accountings["ins-y"].counter("t", "u", f"new {number}", "produce").add(1)
    for part in reports(accountings, ReportHead(1, 9, 2, 6)):
        sent |= {(value.instance_id, value.client_id): value.bytes for value in part.values}

    assert len(sent) == 2 * (VALUES_PER_PART_MAX + 50) + parts
    assert sent["ins-x", "0"] == 1 + parts


def test_a_report_of_many_counters_that_did_not_change_comes_in_parts_as_well() -> None:
    accountings = {}
    for name in ("ins-x", "ins-y", "ins-z"):
        accountings[name] = accounting = UsageAccounting()
        for number in range(COUNTERS_PER_PART_MAX // 2):
            accounting.counter("t", "u", str(number), "produce")

    assert [len(part.values) for part in reports(accountings, ReportHead(1, 9, 1, 5))] == [0]


def test_too_many_keys_are_counted_together_and_nothing_is_lost() -> None:
    accounting = UsageAccounting()
    for number in range(USAGE_KEYS_PER_INSTANCE_MAX + 10):
        accounting.counter("t", "u", str(number), "produce").add(1)

    assert len(accounting) == USAGE_KEYS_PER_INSTANCE_MAX + 1
    assert accounting.counter(OTHER, OTHER, OTHER, "produce").bytes == 10


def test_a_accounting_outlives_its_instance_until_it_was_reported() -> None:
    accountings = AccountingRegistry()
    accounting = accountings.get_or_create("ins-x")
    accountings.retire("ins-x")

    assert accountings.get_or_create("ins-x") is accounting
    counter = accounting.usage.counter("t", "u", "c", "produce")
    counter.add(1)
    accountings.forget_retired()
    assert accountings.get("ins-x") is accounting, "it has something to report"
    counter.confirm(counter.requests)
    accountings.forget_retired()
    assert accountings.get("ins-x") is None
