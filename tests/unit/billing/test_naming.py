"""Bound on the names of one minute, for any number of client ids."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from billing.pipeline.naming import with_others
from billing.pipeline.schema import MINUTE_NAMES
from brokers.contract.usage import OTHER

INSTANCE, MINUTE, TOPIC, USER, CLIENT, DIRECTION, BYTES, REQUESTS = (
    MINUTE_NAMES.index(name)
    for name in ("instance_id", "minute_ms", "topic", "user", "client_id", "direction", "bytes", "requests")
)
rows = st.dictionaries(
    st.tuples(
        st.sampled_from(("ins-a", "ins-b")), st.sampled_from((0, 60_000)), st.sampled_from(("t1", "t2", OTHER)),
        st.sampled_from(("u1", OTHER)), st.sampled_from(("c1", "c2", "c3", OTHER)),
        st.sampled_from(("produce", "consume")),
    ),
    st.tuples(st.integers(0, 100), st.integers(0, 9)),
    max_size=60,
).map(lambda found: [row(*key, *counted) for key, counted in found.items()])  # fmt: skip


def row(*values: Any) -> tuple[Any, ...]:
    places = (INSTANCE, MINUTE, TOPIC, USER, CLIENT, DIRECTION, BYTES, REQUESTS)
    by_place = dict(zip(places, values, strict=True))
    return tuple(by_place[place] for place in range(len(MINUTE_NAMES)))


def sums(found: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for each in found:
        total[each[INSTANCE], each[MINUTE], each[DIRECTION], "bytes"] += each[BYTES]
        total[each[INSTANCE], each[MINUTE], each[DIRECTION], "requests"] += each[REQUESTS]
    return total


@given(rows, st.integers(1, 4))
def test_sums_stay_and_the_heaviest_names_are_kept(given_rows: list[tuple[Any, ...]], named_max: int) -> None:
    result = with_others(given_rows, named_max)

    assert sums(result) == sums(given_rows)
    keys = [tuple(value for place, value in enumerate(each) if place not in (BYTES, REQUESTS)) for each in result]
    assert len(set(keys)) == len(keys)
    of_minute = Counter((each[INSTANCE], each[MINUTE], each[DIRECTION]) for each in result)
    assert all(count <= named_max + 1 for count in of_minute.values())
    for whose, count in of_minute.items():
        if count <= named_max:
            continue
        before = sorted((e[BYTES] for e in given_rows if (e[INSTANCE], e[MINUTE], e[DIRECTION]) == whose), reverse=True)
        named = [
            e[BYTES] for e in result
            if (e[INSTANCE], e[MINUTE], e[DIRECTION]) == whose and (e[TOPIC], e[USER], e[CLIENT]) != (OTHER,) * 3
        ]  # fmt: skip
        assert all(count >= before[named_max - 1] for count in named)


@given(rows)
def test_few_names_stay_as_they_are(given_rows: list[tuple[Any, ...]]) -> None:
    assert sorted(with_others(given_rows)) == sorted(given_rows)


def test_ten_thousand_client_ids_become_a_thousand_and_one_row() -> None:
    flood = [row("ins-a", 0, "t", "u", f"c{number}", "produce", number + 1, 1) for number in range(10_000)]

    result = with_others(flood)

    assert len(result) == 1_001
    (others,) = [each for each in result if each[CLIENT] == OTHER]
    assert others[BYTES] == sum(range(1, 9_001))
