"""Elections as tables (CTL-9, CTL-15, REP-27…30) and their invariants for every small case."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from brokers.contract.partitions import NO_LEADER
from brokers.engine.controller.leader_choice import (
    Choice,
    first_leader,
    offline_leader,
    preferred_leader,
    reassigned_leader,
    shutdown_leader,
    without_dead,
)


def alive(*brokers: int) -> Callable[[int], bool]:
    return set(brokers).__contains__


@pytest.mark.parametrize(
    ("replicas", "live", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), Choice(1, (1, 2, 3))),
        ((1, 2, 3), (2, 3), Choice(2, (2, 3))),
        ((3, 1), (1,), Choice(1, (1,))),
        ((1, 2), (), None),
    ],
)
def test_the_first_leader_is_the_first_live_replica(
    replicas: tuple[int, ...], live: tuple[int, ...], expected: Choice | None
) -> None:
    assert first_leader(replicas, alive(*live)) == expected


@pytest.mark.parametrize(
    ("isr", "live", "unclean", "expected"),
    [
        ((1, 2, 3), (2, 3), False, Choice(2, (2, 3))),
        ((3, 2), (1, 2, 3), False, Choice(2, (3, 2))),
        ((1,), (2, 3), False, Choice(NO_LEADER, (1,))),
        ((1,), (2, 3), True, Choice(2, (2,), unclean=True)),
        ((1,), (), True, Choice(NO_LEADER, (1,))),
        ((1, 3), (3,), True, Choice(3, (3,))),
    ],
)
def test_the_next_leader_is_in_sync_unless_unclean_is_allowed(
    isr: tuple[int, ...], live: tuple[int, ...], unclean: bool, expected: Choice
) -> None:
    """REP-27, REP-28, REP-30, replicas 1 2 3."""
    assert offline_leader((1, 2, 3), isr, alive(*live), unclean_allowed=unclean) == expected


def test_no_election_empties_the_isr_or_elects_the_dead_or_the_lagging() -> None:
    """The test covers every ISR and every set of live brokers over three replicas."""
    replicas = (1, 2, 3)
    subsets = [subset for size in range(4) for subset in itertools.combinations(replicas, size)]
    for isr, live, unclean in itertools.product(subsets[1:], subsets, (False, True)):
        choice = offline_leader(replicas, isr, alive(*live), unclean_allowed=unclean)
        assert choice.isr
        if choice.leader == NO_LEADER:
            assert choice.isr == isr and not set(isr) & set(live) and not (unclean and live)
        else:
            assert choice.leader in live and choice.leader in choice.isr and set(choice.isr) <= set(live)
            assert choice.unclean == (choice.leader not in isr)
        for leader in set(isr) & set(live):
            kept = without_dead(leader, isr, alive(*live))
            assert leader in kept and set(kept) <= set(live)


def test_reassigned_preferred_and_shutdown_leaders() -> None:
    """REP-29."""
    assert reassigned_leader((4, 5), (1, 5), alive(1, 4, 5)) == Choice(5, (1, 5))
    assert reassigned_leader((4, 5), (1,), alive(1, 4, 5)) is None
    assert preferred_leader((1, 2), (2, 1), alive(1, 2)) == Choice(1, (2, 1))
    assert preferred_leader((1, 2), (2,), alive(1, 2)) is None
    assert preferred_leader((1, 2), (1, 2), alive(2)) is None
    stopping = alive(1)
    assert shutdown_leader((1, 2, 3), (1, 2, 3), alive(1, 2, 3), stopping) == Choice(2, (2, 3))
    assert shutdown_leader((1,), (1,), alive(1), stopping) is None


def test_the_sole_member_of_an_isr_is_never_removed() -> None:
    """REP-30."""
    assert without_dead(NO_LEADER, (1,), alive()) == (1,)
