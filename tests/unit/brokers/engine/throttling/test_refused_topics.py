"""The record of automatic topic creations that failed."""

from __future__ import annotations

from brokers.engine.throttling.refusals import TOPIC_NAMES_MAX, TOPICS_SHOWN_MS, RefusedTopics

NOW_MS = 1_700_000_000_000


def test_a_name_is_news_once_until_its_reason_changes_or_it_was_quiet() -> None:
    refused = RefusedTopics()

    assert refused.record("a", "full", NOW_MS)
    assert not refused.record("a", "full", NOW_MS + 100)
    assert refused.record("a", "fuller", NOW_MS + 200)
    assert refused.record("a", "fuller", NOW_MS + 300 + TOPICS_SHOWN_MS)


def test_names_not_requested_lately_are_left_out() -> None:
    refused = RefusedTopics()
    refused.record("a", "full", NOW_MS)
    refused.record("a", "full", NOW_MS + 1)

    assert refused.as_json(NOW_MS + 1) == [{"name": "a", "reason": "full", "count": 2, "last_ms": NOW_MS + 1}]
    assert refused.as_json(NOW_MS + 2 + TOPICS_SHOWN_MS) == []


def test_the_latest_of_many_names_are_kept() -> None:
    refused = RefusedTopics()
    for number in range(TOPIC_NAMES_MAX + 1):
        refused.record(str(number), "full", NOW_MS)
    refused.record("1", "full", NOW_MS)

    names = [line["name"] for line in refused.as_json(NOW_MS)]
    assert len(names) == TOPIC_NAMES_MAX
    assert (names[0], names[-1]) == ("1", "2")
