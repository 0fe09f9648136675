"""A process that stood still finds out before it acknowledges anything (CTL-4)."""

from __future__ import annotations

from brokers.engine.pulse import Pulse


def test_a_pause_is_told_once_with_its_length() -> None:
    pulse = Pulse(now_ms=1_000, pause_ms_max=3_000)
    sent: list[int] = []
    pulse.subscribe(sent.append)
    for now_ms in (1_200, 4_200, 7_201, 7_202):
        pulse.beat(now_ms)
    assert sent == [3_001]


def test_a_clock_set_back_is_no_pause() -> None:
    pulse = Pulse(now_ms=10_000, pause_ms_max=3_000)
    sent: list[int] = []
    pulse.subscribe(sent.append)
    pulse.beat(5_000)
    pulse.beat(5_200)
    assert sent == []
    assert pulse.beaten_ms == 5_200
