"""Limits on failed password attempts."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from brokers.engine.access import attempts
from brokers.engine.access.attempts import ADDRESS_FAILURES_BURST, USER_FAILURES_BURST, FailedAttempts

HERE, THERE = ip_address("10.0.0.1"), ip_address("10.0.0.2")


def fail(tried: FailedAttempts, user: str | None, times: int, now_ms: int = 0, address: object = HERE) -> None:
    for _ in range(times):
        assert tried.take_refusal_delay_ms(user, address, now_ms) == 0  # type: ignore[arg-type]
        tried.record_failure(user, address, now_ms)  # type: ignore[arg-type]


def test_failures_of_a_user_from_one_address_are_limited_and_others_go_on() -> None:
    tried = FailedAttempts()
    fail(tried, "alice", USER_FAILURES_BURST)

    assert tried.take_refusal_delay_ms("alice", HERE, 0) > 0
    assert tried.take_refusal_delay_ms("alice", THERE, 0) == 0
    assert tried.take_refusal_delay_ms("bob", HERE, 0) == 0


def test_failures_of_an_address_are_limited_under_any_name() -> None:
    tried = FailedAttempts()
    for number in range(ADDRESS_FAILURES_BURST):
        fail(tried, f"user-{number}", 1)

    assert tried.take_refusal_delay_ms("alice", HERE, 0) > 0
    assert tried.take_refusal_delay_ms("alice", THERE, 0) == 0


def test_an_attempt_without_a_name_counts_for_the_address_alone() -> None:
    tried = FailedAttempts()
    fail(tried, None, ADDRESS_FAILURES_BURST - 1)
    fail(tried, "alice", 1)
    assert tried.take_refusal_delay_ms(None, HERE, 0) > 0
    assert tried.take_refusal_delay_ms("alice", HERE, 0) > 0
    assert tried.take_refusal_delay_ms(None, THERE, 0) == 0
    tried.record_success(None, HERE, was_counted=True)
    assert tried.take_refusal_delay_ms("bob", HERE, 0) == 0
    tried.record_success(None, HERE, was_counted=False)
    assert len(tried) == 2


def test_each_refusal_takes_longer_up_to_a_bound() -> None:
    tried = FailedAttempts()
    fail(tried, "alice", USER_FAILURES_BURST)
    delays = [tried.take_refusal_delay_ms("alice", HERE, 0) for _ in range(12)]
    assert delays[:4] == [100, 200, 400, 800]
    assert delays[-1] == attempts.REFUSED_DELAY_MS_MAX


def test_time_lets_a_user_try_again_at_an_even_rate() -> None:
    tried = FailedAttempts()
    fail(tried, "alice", USER_FAILURES_BURST)
    later_ms = 60_000 // attempts.USER_FAILURES_PER_MINUTE
    assert tried.take_refusal_delay_ms("alice", HERE, later_ms - 100) > 0
    fail(tried, "alice", 1, later_ms + 100)
    assert tried.take_refusal_delay_ms("alice", HERE, later_ms + 200) == attempts.REFUSED_DELAY_MS_MIN


def test_a_right_password_clears_its_user_but_not_its_address() -> None:
    tried = FailedAttempts()
    for number in range(ADDRESS_FAILURES_BURST - 1):
        fail(tried, f"user-{number}", 1)
    fail(tried, "alice", 1)
    tried.record_success("alice", HERE, was_counted=True)
    fail(tried, "mallory", 1)

    tried.record_success("alice", HERE, was_counted=False)

    assert tried.take_refusal_delay_ms("alice", HERE, 0) > 0


def test_addresses_of_one_ipv6_network_are_one() -> None:
    tried = FailedAttempts()
    for number in range(USER_FAILURES_BURST):
        tried.record_failure("alice", ip_address(f"2001:db8::{number + 1:x}"), 0)
    assert tried.take_refusal_delay_ms("alice", ip_address("2001:db8::ffff"), 0) > 0
    assert tried.take_refusal_delay_ms("alice", ip_address("2001:db8:0:1::1"), 0) == 0


def test_remembered_failures_are_bounded_and_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "BUCKETS_MAX", 20)
    tried = FailedAttempts()
    for number in range(200):
        tried.record_failure(f"user-{number}", HERE, 0)
    assert len(tried) <= 20
    assert tried.take_refusal_delay_ms("somebody", HERE, 0) > 0, "the address fails all the time"
