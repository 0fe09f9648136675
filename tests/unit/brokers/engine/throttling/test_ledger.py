"""The traffic ledger: the limit that throttled, refusals, totals by cause, and the collected minutes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.assembly import traffic_report
from brokers.engine.assembly.traffic_report import throttle_samples, traffic_page
from brokers.engine.capacity.room import DISK_SHORT_MESSAGE
from brokers.engine.throttling import charging, ledger, throttled_minutes
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.charging import Limiter, Rule
from brokers.engine.throttling.ledger import Ledger
from brokers.engine.throttling.refusals import DISK_RULE, FROZEN_RULE, STORAGE_RULE, refusal_rule
from brokers.engine.throttling.throttled_minutes import MINUTE_MS, ThrottledMinutes
from brokers.engine.throttling.traffic import NEVER_MS, Traffic
from quotas.precedence import Entity

BANDWIDTH = Rule("instance_bandwidth", charging.PRODUCER_BYTE_RATE, None, None)
NOW_MS = 1_790_000_000_000 // MINUTE_MS * MINUTE_MS


def client_rule(name: str) -> Rule:
    return Rule("client_quota", charging.PRODUCER_BYTE_RATE, 3, Entity(True, name, False, None))


def test_an_entry_has_the_share_of_this_broker_and_the_whole_limit() -> None:
    kept = Ledger()
    kept.record(BANDWIDTH, 7.0, "u", "a", 5, NOW_MS, 20.0)
    kept.record(client_rule("u"), 3.0, "u", "a", 5, NOW_MS - 1)

    bandwidth, quota = kept.as_json(NOW_MS)

    assert (bandwidth["limit_bytes_per_s"], bandwidth["limit_per_s"], bandwidth["whole_limit_per_s"]) == (7, 7, 20)
    assert (quota["limit_per_s"], quota["whole_limit_per_s"]) == (3, 3)


def test_a_limiter_keeps_the_whole_limit_beside_its_share() -> None:
    limiter = Limiter(BANDWIDTH, 20.0, 0)
    assert limiter.whole_limit_per_s == 20.0
    limiter.set_limit(7.0, 1, 20.0)
    assert (limiter.limit_per_s, limiter.whole_limit_per_s) == (7.0, 20.0)
    limiter.set_limit(9.0, 2)
    assert limiter.whole_limit_per_s == 9.0


def test_a_refusal_waits_for_nothing_and_counts_as_going_on_for_some_seconds() -> None:
    kept = Ledger()
    kept.record_refusals(STORAGE_RULE, None, "u", "a", 3, NOW_MS)

    (entry,) = kept.as_json(NOW_MS + ledger.REFUSAL_ACTIVE_MS - 1)

    assert (entry["count"], entry["waited_ms_total"], entry["delay_ms_p95"], entry["active"]) == (3, 0, 0, True)
    assert kept.as_json(NOW_MS + ledger.REFUSAL_ACTIVE_MS)[0]["active"] is False
    assert kept.totals_json() == {"capacity": [3, 0]}


@pytest.mark.parametrize(
    ("state", "message", "expected"),
    [
        ("active", "used up", STORAGE_RULE),
        ("frozen", None, FROZEN_RULE),
        ("active", DISK_SHORT_MESSAGE, DISK_RULE),
        ("frozen", DISK_SHORT_MESSAGE, DISK_RULE),
    ],
)
def test_a_refused_produce_has_one_cause(state: str, message: str | None, expected: Rule) -> None:
    assert refusal_rule(state, message) == expected


def test_totals_of_all_instances_outlive_their_entries_and_the_instances() -> None:
    accountings = AccountingRegistry()
    for number in range(3):
        accountings.get_or_create(f"ins-{number}").record_request_time(100, "u", "a", NOW_MS)
    accountings.retire("ins-0")
    accountings.forget_retired()

    shown = {(sample.name, sample.labels): sample.value for sample in throttle_samples(accountings)}

    assert shown == {
        ("penstock_broker_throttled_requests", (("cause", "request_time"),)): 3,
        ("penstock_broker_throttle_seconds", (("cause", "request_time"),)): 0.3,
    }


def test_a_minute_has_each_cause_with_those_who_waited_longest() -> None:
    minutes = ThrottledMinutes()
    for client, delay_ms in (("a", 10), ("b", 400), ("c", 30), ("d", 20), ("b", 100)):
        minutes.record((BANDWIDTH, "u", client), 20.0, 1, delay_ms, NOW_MS + 59_000)
    minutes.record((BANDWIDTH, "u", "a"), 20.0, 1, 5, NOW_MS + MINUTE_MS)

    first, second = minutes.list_minutes(0, NEVER_MS)

    assert (first["minute_ms"], second["minute_ms"]) == (NOW_MS, NOW_MS + MINUTE_MS)
    (cause,) = first["causes"]
    assert (cause["count"], cause["waited_ms"], cause["longest_ms"], cause["whole_limit_per_s"]) == (5, 560, 400, 20.0)
    assert cause["clients"] == [["u", "b", 2, 500], ["u", "c", 1, 30], ["u", "d", 1, 20]]
    assert [minute["minute_ms"] for minute in minutes.list_minutes(NOW_MS + MINUTE_MS, NEVER_MS)] == [
        NOW_MS + MINUTE_MS
    ]
    json.dumps(first)


def test_invented_names_do_not_make_a_minute_grow_and_lose_no_count() -> None:
    minutes = ThrottledMinutes()
    for number in range(1_000):
        minutes.record((client_rule(f"u{number}"), f"u{number}", f"c{number}"), 1.0, 1, 1, NOW_MS)
        minutes.record((BANDWIDTH, f"u{number}", f"c{number}"), 1.0, 1, 1, NOW_MS)

    (minute,) = minutes.list_minutes(0, NEVER_MS)

    assert len(minute["causes"]) <= throttled_minutes.RULES_PER_MINUTE_MAX + 2
    assert sum(cause["count"] for cause in minute["causes"]) == 2_000
    assert all(len(cause["clients"]) <= throttled_minutes.CLIENTS_SHOWN_MAX for cause in minute["causes"])
    (together,) = [cause for cause in minute["causes"] if cause["kind"] == "client_quota" and cause["level"] is None]
    assert together["entity"] == {}


def test_a_quarter_of_an_hour_is_kept() -> None:
    minutes = ThrottledMinutes()
    for number in range(60):
        minutes.record((BANDWIDTH, "u", "a"), 1.0, 1, 1, NOW_MS + number * MINUTE_MS)

    assert len(minutes.list_minutes(0, NEVER_MS)) == throttled_minutes.MINUTES_KEPT
    assert minutes.list_minutes(0, NEVER_MS)[-1]["minute_ms"] == NOW_MS + 59 * MINUTE_MS


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 9)), max_size=60), st.integers(0, 2_000))
def test_points_since_a_moment_are_those_of_the_whole_ring_from_it_on(
    events: list[tuple[int, int]], back_s: int
) -> None:
    ring, now_ms = Traffic(), 10_000_000
    for wait_s, count in events:
        now_ms += wait_s * 1_000
        ring.add_produced(count, now_ms)
    since_ms = max(0, now_ms - back_s * 1_000)

    assert ring.points(since_ms, now_ms) == [point for point in ring.points(0, now_ms) if point[0] >= since_ms]


def test_a_full_ring_answers_from_the_latest_second_on() -> None:
    ring = Traffic()
    for second in range(1, 3_000):
        ring.add_produced(second, second * 1_000)

    assert [point[0] for point in ring.points(2_990_000, 2_999_000)] == [
        second * 1_000 for second in range(2_990, 3_000)
    ]
    assert len(ring.points(0, 2_999_000)) == 901


def page(
    accountings: AccountingRegistry, now_ms: int, since_ms: int = 0, after: str = "", until_ms: int = NEVER_MS
) -> dict[str, Any]:
    clock, accounting = SimpleNamespace(now_ms=lambda: now_ms), SimpleNamespace(accountings=accountings)
    services = SimpleNamespace(clock=clock, accounting=accounting)
    return traffic_page(services, 7, since_ms=since_ms, until_ms=until_ms, after=after)  # type: ignore[arg-type]


def test_one_answer_has_all_instances_that_did_something() -> None:
    accountings = AccountingRegistry()
    accountings.get_or_create("ins-a").traffic.add_produced(5, NOW_MS)
    accountings.get_or_create("ins-b").record_request_time(40, "u", "c", NOW_MS)
    accountings.get_or_create("ins-quiet")

    answer = page(accountings, NOW_MS + 500)

    assert list(answer["instances"]) == ["ins-a", "ins-b"]
    assert answer["instances"]["ins-a"] == {"points": [[NOW_MS, 5, 0, 0]], "throttled": []}
    assert answer["instances"]["ins-b"]["throttled"][0]["causes"][0]["kind"] == "request_time"
    assert (answer["alive_since_ms"], answer["next"]) == (7, None)
    assert page(accountings, NOW_MS + 5_000, since_ms=NOW_MS + 1_000)["instances"] == {}


def test_spans_one_after_the_other_tell_everything_once() -> None:
    accountings = AccountingRegistry()
    for second in range(100):
        accountings.get_or_create("ins-a").traffic.add_produced(second, NOW_MS + second * 1_000)
        accountings.get_or_create("ins-a").ledger.record(BANDWIDTH, 7.0, "u", "a", 5, NOW_MS + second * 1_000)
    points, minutes = [], []

    for since_ms in range(NOW_MS, NOW_MS + 120_000, 30_000):
        did = page(accountings, NOW_MS + 100_000, since_ms, until_ms=since_ms + 30_000)["instances"]
        points += did.get("ins-a", {"points": []})["points"]
        minutes += did.get("ins-a", {"throttled": []})["throttled"]

    assert [point[1] for point in points] == list(range(100))
    assert [minute["causes"][0]["count"] for minute in minutes] == [60, 40]


def test_an_answer_is_bounded_and_goes_on_where_it_ended() -> None:
    accountings = AccountingRegistry()
    ids = [f"ins-{number:04}" for number in range(30)]
    for instance_id in ids:
        for second in range(900):
            accountings.get_or_create(instance_id).traffic.add_produced(1, NOW_MS + second * 1_000)
    now_ms, after, seen = NOW_MS + 900_000, "", []

    while after is not None:
        answer = page(accountings, now_ms, after=after)
        assert (
            sum(len(did["points"]) for did in answer["instances"].values()) < traffic_report.POINTS_PER_PAGE_MAX + 900
        )
        seen += list(answer["instances"])
        after = answer["next"]

    assert seen == ids


def test_a_pause_ends_a_burst_and_a_delay_that_goes_on_does_not() -> None:
    kept = Ledger()
    for at_ms in (0, 4_000, 13_999, 40_000, 41_000):
        kept.record(client_rule("u"), 3.0, "u", "a", 5, NOW_MS + at_ms)
    kept.record(client_rule("v"), 3.0, "v", "a", 30_000, NOW_MS)
    kept.record(client_rule("v"), 3.0, "v", "a", 5, NOW_MS + 35_000)

    shown = {entry["user"]: entry for entry in kept.as_json(NOW_MS + 41_000)}

    assert [shown["u"][name] for name in ("bursts", "since_ms", "burst_since_ms")] == [2, NOW_MS, NOW_MS + 40_000]
    assert [shown["v"][name] for name in ("bursts", "burst_since_ms")] == [1, NOW_MS]
