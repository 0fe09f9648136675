"""Rate-limited log lines with the number of suppressed ones."""

from __future__ import annotations

from config.web.notices import NOTICE_EVERY_S, Notices


def test_the_first_notice_is_written_at_once_and_the_others_together() -> None:
    said: list[tuple[str, int]] = []
    notices = Notices(lambda _text, what, count: said.append((what, count)))
    for _ in range(1000):
        notices.add("refused", 100.0)
    notices.add("closed", 100.0)
    assert said == [("refused", 1), ("closed", 1)]
    notices.flush(101.0)
    assert len(said) == 2
    notices.flush(100.0 + NOTICE_EVERY_S)
    assert said[2:] == [("refused", 999)]
    notices.flush(100.0 + 3 * NOTICE_EVERY_S)
    assert len(said) == 3
