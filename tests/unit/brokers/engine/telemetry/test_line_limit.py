"""A tenant cannot make a broker fill its disk with log lines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from brokers.engine.telemetry import logs
from brokers.engine.telemetry.line_limit import (
    EVENTS_MAX,
    EXCEPTION_CHARS_MAX,
    LINES_PER_MINUTE_MAX,
    OTHERS,
    VALUE_CHARS_MAX,
    LineLimit,
    truncate_values,
)

ROOT = Path(__file__).resolve().parents[5]
MINUTE_MS = 60_000
LOG_BYTES_PER_MINUTE_MAX = 1_000_000


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_lines_of_an_event_are_limited_per_minute_and_omitted_ones_are_counted() -> None:
    clock = Clock()
    limit = LineLimit(clock)
    admitted = [limit.admit("topic_not_created") for _ in range(LINES_PER_MINUTE_MAX + 50)]
    assert admitted == [0] * LINES_PER_MINUTE_MAX + [None] * 50
    assert limit.admit("broker_stopping") == 0, "another event is not touched"

    clock.now_ms = MINUTE_MS

    assert [limit.admit("topic_not_created") for _ in range(2)] == [50, 0]


def test_events_without_end_share_one_allowance() -> None:
    limit = LineLimit(Clock())
    admitted = [limit.admit(f"group {number} is unknown") for number in range(10_000)]
    assert sum(line is not None for line in admitted) == EVENTS_MAX + LINES_PER_MINUTE_MAX
    assert len(limit._line_count_by_event) == EVENTS_MAX + 1 and len(limit._suppressed_by_event) <= EVENTS_MAX


def test_the_count_of_an_event_that_returns_is_not_displaced_by_events_that_never_do() -> None:
    clock = Clock()
    limit = LineLimit(clock)
    for number in range(EVENTS_MAX):
        clock.now_ms += MINUTE_MS
        assert [limit.admit(f"once {number}") for _ in range(LINES_PER_MINUTE_MAX + 1)][-1] is None
    clock.now_ms += MINUTE_MS
    assert [limit.admit("again") for _ in range(LINES_PER_MINUTE_MAX + 7)][-1] is None
    clock.now_ms += MINUTE_MS
    assert limit.admit("again") == 7
    assert limit.admit("once 199") == 1
    assert limit.admit(OTHERS) == 2
    assert len(limit._suppressed_by_event) <= EVENTS_MAX


def test_lines_of_libraries_say_how_many_were_suppressed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    limiter, lines = logs._LineLimiter(), logs._JsonLines()
    monkeypatch.setattr(limiter, "_limit", LineLimit(clock))

    def record() -> logging.LogRecord:
        return logging.LogRecord("kazoo.client", logging.WARNING, "", 0, "connection %s lost", (7,), None)

    assert [limiter.admits(record()) for _ in range(LINES_PER_MINUTE_MAX + 5)] == [True] * LINES_PER_MINUTE_MAX + [
        False
    ] * 5
    clock.now_ms += MINUTE_MS
    first = record()
    assert limiter.admits(first)
    assert json.loads(lines.format(first))["suppressed_lines"] == 5
    assert "suppressed_lines" not in json.loads(lines.format(record()))


def test_long_values_and_tracebacks_are_cut_in_their_middle() -> None:
    line: dict[str, object] = {
        "event": "e", "group": "g" * 40_000, "offsets": list(range(10_000)), "exception": "x" * 100_000, "count": 7
    }  # fmt: skip
    truncate_values(line)
    assert len(str(line["group"])) < VALUE_CHARS_MAX + 50 and "(40000 characters)" in str(line["group"])
    assert len(str(line["offsets"])) < VALUE_CHARS_MAX + 50
    assert len(str(line["exception"])) < EXCEPTION_CHARS_MAX + 50
    assert line["count"] == 7


ATTACKED = """
import logging
import structlog
from brokers.engine.telemetry import logs
logs.configure(broker_id=1)
log = structlog.get_logger("attacked")
for number in range(1_000):
    for event in range(10):
        log.warning(f"event_{event}", group=f"{number}" * 5_000, topic="t" * 250)
    logging.getLogger("kazoo.client").warning("connection %s lost", number)
"""


def test_ten_events_at_full_speed_with_the_longest_names_stay_below_a_megabyte() -> None:
    written = subprocess.run([sys.executable, "-c", ATTACKED], cwd=ROOT, stderr=subprocess.PIPE, check=True).stderr
    lines = [json.loads(line) for line in written.splitlines()]
    minutes = len(lines) // (11 * LINES_PER_MINUTE_MAX)
    assert len(lines) == 11 * LINES_PER_MINUTE_MAX * minutes and minutes in (1, 2), "the clock may go over a minute"
    assert len(written) < LOG_BYTES_PER_MINUTE_MAX * minutes
    assert {line["event"] for line in lines} >= {"event_0", "event_9", "connection 0 lost"}
