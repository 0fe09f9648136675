"""Judgement of a machine: what brokers can use passes, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.agent import check_rules
from brokers.agent.check_rules import has_failed
from brokers.limits import CLOCK_OFFSET_MS_MAX, PORTS_NAMED_MAX

NO_PORTS = range(0)
PORTS = st.integers(1, 65_535)


@pytest.mark.parametrize("offset_ms", [0, 1, -1, CLOCK_OFFSET_MS_MAX, -CLOCK_OFFSET_MS_MAX])
def test_a_clock_within_a_second_passes(offset_ms: int) -> None:
    assert check_rules.clock_check(offset_ms)["state"] == "passed"


@pytest.mark.parametrize("offset_ms", [CLOCK_OFFSET_MS_MAX + 1, -CLOCK_OFFSET_MS_MAX - 1, 10**9])
def test_a_clock_further_off_fails(offset_ms: int) -> None:
    assert check_rules.clock_check(offset_ms)["state"] == "failed"


@given(PORTS, PORTS, st.sets(PORTS, max_size=20), st.sets(PORTS, max_size=20))
def test_ports_fail_exactly_when_another_program_has_one(one: int, other: int, busy: set[int], own: set[int]) -> None:
    first, last = sorted((one, other))
    found = check_rules.ports_check(first, last, busy, own, NO_PORTS)
    taken = sorted(port for port in busy - own if first <= port <= last)
    assert found["state"] == ("failed" if taken else "passed")
    assert found["data"]["taken"] == taken[:PORTS_NAMED_MAX]
    assert found["data"]["taken_count"] == len(taken)


@pytest.mark.parametrize(
    ("first", "last", "outgoing", "state", "shared"),
    [
        (19_000, 28_999, range(32_768, 61_000), "passed", None),
        (19_000, 32_768, range(32_768, 61_000), "warning", 32_768),
        (40_000, 40_010, range(32_768, 61_000), "warning", 40_000),
        (61_000, 61_010, range(32_768, 61_000), "passed", None),
    ],
)
def test_ports_that_outgoing_connections_may_get_are_a_warning(
    first: int, last: int, outgoing: range, state: str, shared: int | None
) -> None:
    found = check_rules.ports_check(first, last, (), (), outgoing)
    assert (found["state"], found["data"]["outgoing_first"]) == (state, shared)


def test_one_failed_check_is_enough() -> None:
    passed, warned = check_rules.clock_check(0), check_rules.ports_check(1, 2, (), (), range(1, 3))
    assert not has_failed([passed, warned])
    assert has_failed([passed, check_rules.address_check("10.0.0.9", "Cannot assign requested address")])
    assert has_failed([check_rules.version_check("0.1.0", ["brokers.0099"], [])])
    assert has_failed([check_rules.version_check("0.1.0", [], ["brokers.0013"])])
    assert has_failed([check_rules.directories_check({"/disk1": "", "/disk2": "Read-only file system"})])
    assert not has_failed([])
