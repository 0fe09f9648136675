"""The checker finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.chaos.verdict import (
    PAUSE_MS_MIN,
    Acknowledged,
    TransformResult,
    first_difference,
    first_differing_offset,
    judge_records,
    judge_transformed,
)


def test_everything_acknowledged_and_read_in_order_holds() -> None:
    verdict = judge_records({0, 1, 2}, [0, 1, 2, 3])
    assert verdict.holds(idempotent=True)
    assert verdict.acknowledged == 3


def test_a_lost_record_is_found() -> None:
    verdict = judge_records({0, 1, 2}, [0, 2])
    assert verdict.lost == (1,)
    assert not verdict.holds(idempotent=False)


def test_a_record_in_another_order_is_found() -> None:
    verdict = judge_records({0, 1, 2}, [0, 2, 1])
    assert verdict.reordered == (1,)
    assert not verdict.holds(idempotent=False)


def test_a_record_written_twice_is_a_fault_of_an_idempotent_producer_alone() -> None:
    verdict = judge_records({0, 1, 2}, [0, 1, 0, 1, 2])
    assert verdict.repeated == (0, 1)
    assert verdict.holds(idempotent=False)
    assert not verdict.holds(idempotent=True)


def test_acknowledgements_are_counted_once_and_long_waits_are_remembered() -> None:
    acknowledged = Acknowledged()
    for number, now_ms in ((0, 0.0), (1, 1.0), (1, 2.0), (9_000, 2.0 + PAUSE_MS_MIN)):
        acknowledged.add(number, now_ms)
    assert acknowledged.numbers() == {0, 1, 9_000}
    assert acknowledged.count == 3
    assert acknowledged.pauses_ms == [(2.0 + PAUSE_MS_MIN, PAUSE_MS_MIN)]


@pytest.mark.parametrize(
    ("replicas", "at"),
    [
        ([[(0, b"a"), (1, b"b")], [(0, b"a"), (1, b"b")]], None),
        ([[(0, b"a"), (1, b"b")], [(0, b"a"), (1, b"c")]], 1),
        ([[(0, b"a"), (1, b"b")], [(0, b"a")]], 1),
        ([[(0, b"a")], [(0, b"a")], [(0, b"a"), (5, b"x")]], 5),
        ([[], []], None),
    ],
)
def test_replicas_that_differ_are_found(replicas: list[list[tuple[int, bytes]]], at: int | None) -> None:
    assert first_differing_offset(replicas) == at


@pytest.mark.parametrize(
    ("sink", "wrong"),
    [
        ([0, 10, 20], {}),
        ([0, 20], {"missing": (10,)}),
        ([0, 10, 10, 20], {"repeated": (10,)}),
        ([0, 10, 5, 20], {"foreign": (5,)}),
        ([10, 0, 20], {"reordered": (0,)}),
    ],
)
def test_output_that_is_not_the_function_of_the_input_once_each_is_found(
    sink: list[int], wrong: dict[str, tuple[int, ...]]
) -> None:
    nothing: dict[str, tuple[int, ...]] = dict.fromkeys(("missing", "repeated", "foreign", "reordered"), ())
    verdict = judge_transformed([0, 1, 2], sink, lambda number: number * 10)
    assert verdict == TransformResult(len(sink), **{**nothing, **wrong})
    assert verdict.holds is not bool(wrong)


@pytest.mark.parametrize(
    ("live", "at"), [([], None), ([1, 2], None), ([1, 2, 3], None), ([1, 9], 1), ([1, 1], 1), ([1, 2, 3, 4], 3)]
)
def test_a_reader_that_was_given_what_did_not_last_is_found(live: list[int], at: int | None) -> None:
    assert first_difference(live, [1, 2, 3]) == at
