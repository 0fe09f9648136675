"""Samples of seconds: packed by minute, with the spans in which they are known."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from brokers.limits import SAMPLES_KEPT_S
from brokers.monitoring.observe import TRAFFIC_HISTORY_MS
from brokers.monitoring.second_samples import Spans, add_span, merge_rows, pack_rows, sum_points, unpack_rows

BEGAN_MS = 1_790_000_000_000 // 60_000 * 60_000


def test_a_second_that_one_answer_has_twice_is_the_sum_of_both() -> None:
    assert sum_points([[1_000, 5, 0, 3], [1_000, 2, 1, 9]]) == {1_000: (1_000, 7, 1, 9)}


def test_the_larger_figures_of_a_second_in_two_answers_count() -> None:
    assert merge_rows([(1_000, 5, 0, 3), (1_000, 7, 0, 2)]) == {1_000: (1_000, 7, 0, 3)}


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 2**40), st.integers(0, 2**32 - 1), st.integers(0, 10**6))))
def test_a_minute_survives_being_packed(given_rows: list[tuple[int, int, int, int]]) -> None:
    rows = [
        (BEGAN_MS + second * 1_000, min(produced, 2**32 - 1), consumed, min(delay_ms, 2**16 - 1))
        for second, produced, consumed, delay_ms in given_rows
    ]
    packed_rows = pack_rows((BEGAN_MS + row[0] * 1_000, *row[1:]) for row in given_rows)
    assert unpack_rows(packed_rows, BEGAN_MS) == rows
    assert merge_rows([*rows, *rows]) == merge_rows(rows)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8))
def test_joined_spans_cover_what_each_of_them_did_and_nothing_else(given_spans: list[tuple[int, int]]) -> None:
    spans: Spans = ()
    for span in given_spans:
        spans = add_span(spans, span)
    covered = {at for start, end in spans for at in range(start, end)}
    assert covered == {at for start, end in given_spans for at in range(start, end)}
    assert all(before[1] < after[0] for before, after in pairwise(spans))


def test_spans_that_are_too_old_go() -> None:
    assert add_span(((0, 10), (20, 30)), (40, 50), oldest_ms=15) == ((20, 30), (40, 50))
    assert SAMPLES_KEPT_S * 1_000 > TRAFFIC_HISTORY_MS
