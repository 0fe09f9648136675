"""Sizes of an instance over time, from its operations (`billing.metering.spans`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from billing.metering.spans import SizeChange, spans
from billing.rating.terms import SizeSpan
from instances.choices import OperationType

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def change(
    type_: OperationType, asked: int, done: int | None = None, *, mb_s: int = 20, suspended: bool | None = None
) -> SizeChange:
    """Returns a change of size. `suspended` is the state after it; None keeps the state before."""
    return SizeChange(
        type=type_,
        requested_at=at(asked),
        done_at=None if done is None else at(done),
        plan="stream",
        bandwidth_mb_s=mb_s,
        storage_gb=100,
        is_suspended=type_ == OperationType.SUSPEND if suspended is None else suspended,
    )


def short(found: list[SizeSpan]) -> list[tuple[int, int | None, int, bool]]:
    def minutes(instant: datetime | None) -> int | None:
        return None if instant is None else round((instant - BEGIN).total_seconds() / 60)

    return [(minutes(one.start) or 0, minutes(one.end), one.bandwidth_mb_s, one.only_storage) for one in found]


CREATE, RESIZE, DELETE = OperationType.CREATE, OperationType.RESIZE, OperationType.DELETE
SUSPEND, RESUME, RESTORE = OperationType.SUSPEND, OperationType.RESUME, OperationType.RESTORE
PURGE = OperationType.PURGE


def test_it_is_charged_from_when_it_ran_and_not_from_when_it_was_asked_for() -> None:
    assert short(spans([change(CREATE, 0, 2)])) == [(2, None, 20, False)]


def test_an_instance_that_failed_or_never_ran_has_no_span() -> None:
    assert spans([]) == []
    assert spans([change(CREATE, 0)]) == []
    assert spans([change(CREATE, 0), change(DELETE, 5, 6)]) == []


def test_one_that_ran_at_the_second_try_begins_then() -> None:
    assert short(spans([change(CREATE, 0), change(CREATE, 10, 12)])) == [(12, None, 20, False)]


def test_a_size_counts_from_when_brokers_confirmed_it_and_one_that_failed_never() -> None:
    changes = [change(CREATE, 0, 1), change(RESIZE, 10, 11, mb_s=40), change(RESIZE, 20, None, mb_s=60)]
    assert short(spans(changes)) == [(1, 11, 20, False), (11, None, 40, False)]


def test_a_change_of_settings_makes_no_span_of_its_own() -> None:
    changes = [change(CREATE, 0, 1), change(OperationType.CONFIGURE, 5, 6), change(OperationType.ROUTES, 7, 8)]
    assert short(spans(changes)) == [(1, None, 20, False)]


def test_deleted_is_free_from_when_it_was_asked_for_also_while_it_can_be_restored() -> None:
    deleted = [change(CREATE, 0, 1), change(DELETE, 30, 31)]
    assert short(spans(deleted)) == [(1, 30, 20, False)]
    assert short(spans([*deleted, change(RESTORE, 90, 91)])) == [(1, 30, 20, False), (90, None, 20, False)]


def test_purging_a_deleted_one_charges_nothing_more() -> None:
    deleted = [change(CREATE, 0, 2), change(DELETE, 10, 11)]
    for purge in (change(PURGE, 20, 21), change(PURGE, 20), change(PURGE, 10, 12)):
        assert short(spans([*deleted, purge])) == [(2, 10, 20, False)]


def test_a_change_that_is_confirmed_after_the_deletion_does_not_bring_it_back() -> None:
    changes = [change(CREATE, 0, 1), change(RESIZE, 29, 32, mb_s=40), change(DELETE, 30, 31)]
    assert short(spans(changes)) == [(1, 30, 20, False)]


def test_a_suspension_counts_from_when_it_was_asked_for_until_it_was_over() -> None:
    changes = [change(CREATE, 0, 1), change(SUSPEND, 10, 12), change(RESUME, 50, 53)]
    assert short(spans(changes)) == [(1, 10, 20, False), (10, 53, 20, True), (53, None, 20, False)]


def test_a_resize_of_a_suspended_one_stays_suspended() -> None:
    changes = [change(CREATE, 0, 1), change(SUSPEND, 10, 12), change(RESIZE, 20, 21, mb_s=40, suspended=True)]
    assert short(spans(changes)) == [(1, 10, 20, False), (10, 21, 20, True), (21, None, 40, True)]


def test_suspended_deleted_and_restored_is_still_suspended() -> None:
    changes = [
        change(CREATE, 0, 1), change(SUSPEND, 10, 12), change(DELETE, 20, 21, suspended=True),
        change(RESTORE, 30, 31, suspended=True),
    ]  # fmt: skip
    assert short(spans(changes)) == [(1, 10, 20, False), (10, 20, 20, True), (30, None, 20, True)]


def test_one_that_was_resumed_while_it_was_deleted_runs_when_it_is_restored() -> None:
    """Brokers are not involved then, so no operation records the resume: the restore does."""
    changes = [
        change(CREATE, 0, 1), change(SUSPEND, 10, 12), change(DELETE, 20, 21, suspended=True), change(RESTORE, 30, 31),
    ]  # fmt: skip
    assert short(spans(changes)) == [(1, 10, 20, False), (10, 20, 20, True), (30, None, 20, False)]


def test_a_suspension_that_another_change_overtook_counts_all_the_same() -> None:
    changes = [change(CREATE, 0, 1), change(SUSPEND, 10), change(RESIZE, 20, 22, mb_s=40, suspended=True)]
    assert short(spans(changes)) == [(1, 22, 20, False), (22, None, 40, True)]


def test_a_resize_that_is_confirmed_late_does_not_end_a_suspension_asked_for_after_it() -> None:
    changes = [change(CREATE, 0, 1), change(RESIZE, 8, 12, mb_s=40), change(SUSPEND, 10, 11, mb_s=40)]
    assert short(spans(changes)) == [(1, 10, 20, False), (10, None, 40, True)]


any_change = st.builds(
    lambda type_, asked, took, mb_s, suspended: change(
        type_, asked, None if took is None else asked + took, mb_s=mb_s, suspended=suspended
    ),
    st.sampled_from(OperationType),
    st.integers(1, 500),
    st.none() | st.integers(0, 30),
    st.sampled_from([20, 40]),
    st.booleans(),
)


@given(st.lists(any_change, max_size=12))
def test_spans_never_overlap_and_none_is_empty_whatever_the_log_says(changes: list[SizeChange]) -> None:
    found = spans([change(CREATE, 0, 1), *changes])

    assert all(one.end is not None and one.end <= other.start for one, other in pairwise(found))
    assert all(one.end is None or one.start < one.end for one in found)


@given(st.permutations(list(range(5))))
def test_the_order_in_which_operations_are_read_does_not_matter(order: list[int]) -> None:
    changes = [
        change(CREATE, 0, 1), change(RESIZE, 10, 11, mb_s=40), change(SUSPEND, 20, 22), change(RESUME, 30, 33),
        change(DELETE, 40, 41),
    ]  # fmt: skip
    assert spans([changes[number] for number in order]) == spans(changes)
