"""Records of version 2: what is written is what is read, and an earlier reader sees that they are newer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.usage import COUNTED_THINGS, CounterValue, ReportHead, UsageEvent, counted_name
from brokers.contract.usage_columns import events_in, to_record

HEADS = st.builds(ReportHead, *[st.integers(0, 2**63 - 1)] * 4)
NAMES = st.text(max_size=260).map(counted_name)
COUNTERS = st.builds(
    CounterValue, NAMES, NAMES, NAMES, NAMES, st.sampled_from(COUNTED_THINGS), *[st.integers(0, 2**63 - 1)] * 2
)


@given(HEADS, st.lists(COUNTERS, min_size=1, max_size=30))
def test_any_report_comes_back_from_its_record(head: ReportHead, counters: list[CounterValue]) -> None:
    events = [UsageEvent.of(head, counter) for counter in counters]
    assert events_in(to_record(head, counters)) == events
    assert [event for raw in events for event in events_in(raw.to_json())] == events


@given(HEADS, st.lists(COUNTERS, min_size=1, max_size=3))
def test_a_reader_of_version_1_refuses_the_record_as_newer(head: ReportHead, counters: list[CounterValue]) -> None:
    record = to_record(head, counters)
    assert json.loads(record)[0] == 2
    with pytest.raises(ValueError, match="unknown version 2"):
        UsageEvent.from_json(record)


@pytest.mark.parametrize("raw", [b"[2,1]", b"[2,", b"[2,1,1,1,1,[],1,2,3,4,5,6,7]", b"\xff", b"[3,1]"])
def test_an_invalid_usage_record_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        events_in(raw)


def test_a_counter_takes_less_than_half_of_what_it_took() -> None:
    """Names are said once."""
    head = ReportHead(1, 170_000_000_000, 4_000, 1_795_000_000_000)
    counters = [
        CounterValue("ins-aaaaaaaa", f"orders-{n % 20}", "app", f"worker-{n}", "produce", 10**9 + n, n)
        for n in range(1_000)
    ]
    by_events = sum(len(UsageEvent.of(head, counter).to_json()) for counter in counters)
    assert len(to_record(head, counters)) * 2 < by_events
