"""QUO-2…5: the level of client quotas that applies, and clients that share a counter."""

from __future__ import annotations

import itertools

import pytest

from quotas.precedence import Entity, resolve, sharing_group

QUOTA = "producer_byte_rate"
USER, CLIENT = "alice", "etl"
LEVELS = {
    1: Entity(True, USER, True, CLIENT),
    2: Entity(True, USER, True, None),
    3: Entity(True, USER, False, None),
    4: Entity(True, None, True, CLIENT),
    5: Entity(True, None, True, None),
    6: Entity(True, None, False, None),
    7: Entity(False, None, True, CLIENT),
    8: Entity(False, None, True, None),
}


@pytest.mark.parametrize("present", list(itertools.product([False, True], repeat=8)))
def test_the_lowest_level_present_wins_in_all_256_combinations(present: tuple[bool, ...]) -> None:
    levels = [level for level, there in zip(LEVELS, present, strict=True) if there]
    limits = {LEVELS[level]: {QUOTA: float(level)} for level in levels}

    match = resolve(limits, QUOTA, USER, CLIENT)

    if not levels:
        assert match is None
    else:
        assert match == (float(levels[0]), levels[0], LEVELS[levels[0]])


def test_each_quota_type_is_resolved_on_its_own() -> None:
    limits = {LEVELS[1]: {"producer_byte_rate": 1.0}, LEVELS[8]: {"consumer_byte_rate": 8.0}}

    producing, consuming = (
        resolve(limits, quota, USER, CLIENT) for quota in ("producer_byte_rate", "consumer_byte_rate")
    )

    assert producing is not None
    assert producing.level == 1
    assert consuming is not None
    assert consuming.level == 8
    assert resolve(limits, "request_percentage", USER, CLIENT) is None


@pytest.mark.parametrize(("level", "expected"), [(1, 3), (2, 3), (3, 3), (4, 6), (5, 6), (6, 6)])
def test_without_a_client_id_only_the_user_levels_match(level: int, expected: int) -> None:
    limits = {LEVELS[level]: {QUOTA: 1.0}, LEVELS[expected]: {QUOTA: 2.0}}

    match = resolve(limits, QUOTA, USER, "")

    assert match is not None
    assert match.level == expected


def test_a_client_without_id_is_not_caught_by_client_defaults() -> None:
    assert resolve({LEVELS[7]: {QUOTA: 1.0}, LEVELS[8]: {QUOTA: 1.0}}, QUOTA, USER, "") is None


def test_a_user_called_default_is_not_the_default() -> None:
    limits = {Entity(True, "<default>", False, None): {QUOTA: 1.0}}

    assert resolve(limits, QUOTA, USER, CLIENT) is None


def test_groups_are_by_pair_by_user_or_by_client() -> None:
    groups = {level: sharing_group(level, USER, CLIENT) for level in LEVELS}

    assert [level for level, group in groups.items() if group == (USER, CLIENT)] == [1, 2, 4, 5]
    assert [level for level, group in groups.items() if group == (USER, "")] == [3, 6]
    assert [level for level, group in groups.items() if group == ("", CLIENT)] == [7, 8]
