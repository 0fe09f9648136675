"""Retry intervals of ports that could not be opened, and the rate of their log lines."""

from __future__ import annotations

from brokers.engine.assembly.port_retries import LOG_INTERVAL_MS, PAUSE_MS_MAX, PortRetries

INSTANCE = "ins-aaaaaaaa"
PORT = 19_001


def test_pauses_double_up_to_their_limit() -> None:
    retries, now_ms, pauses = PortRetries(), 0, []
    for _ in range(7):
        retries.record_failure(INSTANCE, PORT, now_ms)
        began_ms = now_ms
        while INSTANCE not in retries.due_listeners(now_ms):
            now_ms += 500
        pauses.append(now_ms - began_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, PAUSE_MS_MAX, PAUSE_MS_MAX, PAUSE_MS_MAX]


def test_it_is_said_once_and_then_at_its_interval() -> None:
    retries = PortRetries()
    said = [
        now_ms
        for now_ms in range(0, 3 * LOG_INTERVAL_MS, PAUSE_MS_MAX)
        if retries.record_failure(INSTANCE, PORT, now_ms)
    ]
    assert said == [0, LOG_INTERVAL_MS, 2 * LOG_INTERVAL_MS]


def test_another_port_is_tried_and_said_anew() -> None:
    retries = PortRetries()
    for now_ms in range(0, 60_000, 10_000):
        retries.record_failure(INSTANCE, PORT, now_ms)
    assert retries.record_failure(INSTANCE, PORT + 1, 60_000)
    assert retries.due_listeners(61_000) == [INSTANCE]


def test_a_listener_that_is_open_or_gone_is_not_retried() -> None:
    retries = PortRetries()
    retries.record_failure(INSTANCE, PORT, 0)
    assert (len(retries), retries.discard(INSTANCE), len(retries)) == (1, True, 0)
    assert not retries.due_listeners(100_000)
    assert not retries.discard(INSTANCE)
