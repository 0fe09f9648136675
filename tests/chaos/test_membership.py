"""The size of the group in the group workload."""

from __future__ import annotations

from tests.chaos.membership import group_size_at


def test_a_group_grows_stays_and_shrinks_to_one_member() -> None:
    sizes = [group_size_at(hundredth / 100, 20) for hundredth in range(101)]

    assert (sizes[0], sizes[-1]) == (1, 1)
    assert set(sizes[25:76]) == {20}
    assert sizes[:26] == sorted(sizes[:26])
    assert sizes[75:] == sorted(sizes[75:], reverse=True)


def test_a_group_of_one_stays_one() -> None:
    assert {group_size_at(part, 1) for part in (0.0, 0.3, 0.5, 1.0)} == {1}
