"""Rate-limited log lines with the number of suppressed ones."""

from __future__ import annotations

from config.web.rate_limited_log import LOG_INTERVAL_S, RateLimitedLog


def test_the_first_notice_is_written_at_once_and_the_others_together() -> None:
    said: list[tuple[str, int]] = []
    notices = RateLimitedLog(lambda _text, what, count: said.append((what, count)))
    for _ in range(1000):
        notices.add("refused", 100.0)
    notices.add("closed", 100.0)
    assert said == [("refused", 1), ("closed", 1)]
    notices.flush(101.0)
    assert len(said) == 2
    notices.flush(100.0 + LOG_INTERVAL_S)
    assert said[2:] == [("refused", 999)]
    notices.flush(100.0 + 3 * LOG_INTERVAL_S)
    assert len(said) == 3
