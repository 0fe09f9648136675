"""The checker of group members' diaries finds what it is there to find."""

from __future__ import annotations

from tests.interop.positions import Findings, Line, examine, parse, stopped_in_vain


def diary(*lines: tuple[int, str, int]) -> list[Line]:
    """(time, kind, offset), all of partition 0."""
    return [Line(at, kind, 0, offset) for at, kind, offset in lines]


ALL = diary((1, "assigned", -1), (2, "read", 0), (3, "read", 1), (4, "sends", 2), (5, "committed", 2))


def test_one_member_that_reads_all_holds() -> None:
    assert examine({"a": ALL}, {0: 2}).hold


def test_a_record_that_nobody_read_is_found() -> None:
    assert examine({"a": ALL}, {0: 3}) == Findings(unread=[(0, 2)])


def test_a_successor_goes_on_from_the_last_commit() -> None:
    assert examine({"a": ALL, "b": diary((6, "assigned", -1), (7, "read", 2))}, {0: 3}).hold


def test_a_successor_that_begins_before_the_last_commit_is_found() -> None:
    result = examine({"a": ALL, "b": diary((6, "assigned", -1), (7, "read", 1))}, {0: 2})
    assert len(result.went_back) == 1 and not result.skipped


def test_a_successor_may_read_again_what_was_not_committed() -> None:
    lost = diary((1, "assigned", -1), (2, "read", 0), (3, "read", 1), (4, "sends", 2))
    assert examine({"a": lost, "b": diary((6, "assigned", -1), (7, "read", 0), (8, "read", 1))}, {0: 2}).hold
    assert examine({"a": lost, "b": diary((6, "assigned", -1), (7, "read", 2))}, {0: 3}).hold


def test_a_successor_that_begins_behind_what_anybody_committed_is_found() -> None:
    result = examine({"a": ALL[:3], "b": diary((6, "assigned", -1), (7, "read", 1))}, {0: 2})
    assert len(result.skipped) == 1 and not result.went_back


def test_a_reader_that_skips_or_goes_back_is_found() -> None:
    result = examine({"a": diary((1, "assigned", -1), *((2, "read", offset) for offset in (0, 2, 1)))}, {0: 3})
    assert (len(result.skipped), len(result.went_back)) == (1, 1)


def test_a_late_commit_of_a_former_member_is_found() -> None:
    late = diary((1, "assigned", -1), (2, "read", 0), (6, "sends", 1), (7, "committed", 1))
    result = examine({"late": late, "a": ALL}, {0: 2})
    assert len(result.went_back) == 1


def test_commits_that_cross_on_their_way_prove_nothing() -> None:
    crossing = diary((1, "assigned", -1), (2, "read", 0), (4, "sends", 1), (7, "committed", 1))
    assert examine({"crossing": crossing, "a": ALL}, {0: 2}).hold


def test_a_line_that_was_cut_is_left_out() -> None:
    assert parse("1 read 0 5\n2 read 0") == [Line(1, "read", 0, 5)]


def test_partitions_that_a_member_stops_and_goes_on_with_are_found() -> None:
    stopped = diary((1, "assigned", -1), (2, "revoked", -1))
    assert len(stopped_in_vain({"a": [*stopped, *diary((4, "assigned", -1))]})) == 1
    moved = {"a": [*stopped, *diary((6, "assigned", -1))], "b": diary((3, "assigned", -1), (5, "revoked", -1))}
    assert stopped_in_vain(moved) == []


def test_a_lost_partition_may_come_back_to_its_member() -> None:
    assert stopped_in_vain({"a": diary((1, "assigned", -1), (2, "lost", -1), (3, "assigned", -1))}) == []
