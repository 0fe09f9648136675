"""Judgement of a run with changing rights, and the spans that are excused."""

from __future__ import annotations

from tests.chaos.secured import CAUGHT_UP_S, UncertainSpans, latest_delay_s


def test_a_change_beside_a_broker_that_stands_still_is_nobodys_promise() -> None:
    unsure = UncertainSpans(spans=[(100.0, 110.0)])
    assert unsure.covers(105, 106)
    assert unsure.covers(90, 101)
    assert unsure.covers(109, 200)
    assert unsure.covers(90, 200)
    assert not unsure.covers(90, 99)
    assert not unsure.covers(111, 200)


def test_a_span_that_has_not_ended_covers_what_comes() -> None:
    unsure = UncertainSpans()
    unsure.begin()
    began_s = unsure.open_since_s
    assert began_s is not None
    assert unsure.covers(began_s + 1, began_s + 2)
    assert not unsure.covers(began_s - 2, began_s - 1)
    unsure.end()
    ((begin_s, end_s),) = unsure.spans
    assert begin_s == began_s
    assert end_s >= began_s + CAUGHT_UP_S


def test_a_request_served_after_a_change_is_found() -> None:
    assert latest_delay_s(100.0, [98.0, 101.5, 99.0]) == 1.5
    assert latest_delay_s(100.0, [98.0, 99.0]) == 0
    assert latest_delay_s(100.0, []) == 0
