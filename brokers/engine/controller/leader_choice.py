"""Who leads a partition next (CTL-15, REP-27…30). Pure; every answer follows from the assignment, the ISR and who
lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from brokers.contract.partitions import NO_LEADER

IsAlive = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """`unclean` marks a leader that may miss acknowledged records."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def first_leader(replicas: Sequence[int], is_alive: IsAlive) -> Choice | None:
    """CTL-15: the first live replica of a partition that never had a state, all live ones in its ISR; None while
    none lives.
    """
    live = tuple(replica for replica in replicas if is_alive(replica))
    return Choice(live[0], live) if live else None


def offline_leader(replicas: Sequence[int], isr: Sequence[int], is_alive: IsAlive, *, unclean_allowed: bool) -> Choice:
    """REP-27, REP-28, REP-30: the leader is gone. Nobody fit: no leader, and the ISR stays written as it was."""
    live_isr = tuple(replica for replica in isr if is_alive(replica))
    for replica in replicas:
        if replica in live_isr:
            return Choice(replica, live_isr)
    if unclean_allowed:
        for replica in replicas:
            if is_alive(replica):
                return Choice(replica, (replica,), unclean=True)
    return Choice(NO_LEADER, tuple(isr))


def reassigned_leader(targets: Sequence[int], isr: Sequence[int], is_alive: IsAlive) -> Choice | None:
    """REP-29: the first target replica that lives and is in sync; None when there is none yet."""
    for replica in targets:
        if replica in isr and is_alive(replica):
            return Choice(replica, tuple(isr))
    return None


def preferred_leader(replicas: Sequence[int], isr: Sequence[int], is_alive: IsAlive) -> Choice | None:
    """REP-29: the first replica of the assignment or nobody (then PREFERRED_LEADER_NOT_AVAILABLE, 80)."""
    return reassigned_leader(replicas[:1], isr, is_alive)


def shutdown_leader(
    replicas: Sequence[int], isr: Sequence[int], is_alive: IsAlive, is_stopping: Callable[[int], bool]
) -> Choice | None:
    """REP-29: the first live ISR member that stays; the stopping ones leave the ISR. None when nobody stays."""
    staying = tuple(replica for replica in isr if not is_stopping(replica))
    for replica in replicas:
        if replica in staying and is_alive(replica):
            return Choice(replica, staying)
    return None


def without_dead(leader: int, isr: Sequence[int], is_alive: IsAlive) -> tuple[int, ...]:
    """CTL-9: dead followers leave the ISR; the leader, and a sole member, stay."""
    kept = tuple(replica for replica in isr if replica == leader or is_alive(replica))
    return kept or tuple(isr)
