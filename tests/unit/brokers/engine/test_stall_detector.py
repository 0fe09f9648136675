"""A process that was paused detects that before it acknowledges anything (CTL-4)."""

from __future__ import annotations

from brokers.engine.clock import StallDetector


def test_a_pause_is_reported_once_with_its_length() -> None:
    stall_detector = StallDetector(now_ms=1_000, pause_ms_max=3_000)
    sent: list[int] = []
    stall_detector.subscribe(sent.append)
    for now_ms in (1_200, 4_200, 7_201, 7_202):
        stall_detector.check(now_ms)
    assert sent == [3_001]


def test_a_clock_set_back_is_no_pause() -> None:
    stall_detector = StallDetector(now_ms=10_000, pause_ms_max=3_000)
    sent: list[int] = []
    stall_detector.subscribe(sent.append)
    stall_detector.check(5_000)
    stall_detector.check(5_200)
    assert sent == []
    assert stall_detector.checked_ms == 5_200
