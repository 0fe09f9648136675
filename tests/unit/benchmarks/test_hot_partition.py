"""Figures of the benchmark of a hot partition."""

from __future__ import annotations

from benchmarks.hot_partition import summed


def test_errors_of_both_floods_are_added_by_code() -> None:
    assert summed({"6": 2, "7": 1}, {"6": 3}) == {"6": 5, "7": 1}
    assert summed({}, {}) == {}
