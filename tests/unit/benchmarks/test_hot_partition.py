"""Figures of the benchmark of a hot partition."""

from __future__ import annotations

from benchmarks.hot_partition import add_error_counts


def test_errors_of_both_floods_are_added_by_code() -> None:
    assert add_error_counts({"6": 2, "7": 1}, {"6": 3}) == {"6": 5, "7": 1}
    assert add_error_counts({}, {}) == {}
