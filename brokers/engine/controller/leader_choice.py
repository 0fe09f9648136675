"""Choice of a partition's next leader from its assignment, its ISR and the live brokers (CTL-15, REP-27…30). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from brokers.contract.partitions import NO_LEADER

IsAlive = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen leader and ISR; `unclean` is True if the leader may lack acknowledged records."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def first_leader(replicas: Sequence[int], is_alive: IsAlive) -> Choice | None:
    """Chooses the first leader of a new partition: the first live replica, with all live replicas in the ISR (CTL-15).

    Returns None while no replica is alive.
    """
    live = tuple(replica for replica in replicas if is_alive(replica))
    return Choice(live[0], live) if live else None


def offline_leader(replicas: Sequence[int], isr: Sequence[int], is_alive: IsAlive, *, unclean_allowed: bool) -> Choice:
    """Chooses a leader after the previous one died (REP-27, REP-28, REP-30).

    If no replica is eligible, the partition has no leader and the ISR stays as it was.
    """
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
    """Chooses the first target replica that is alive and in sync, None if there is none yet (REP-29)."""
    for replica in targets:
        if replica in isr and is_alive(replica):
            return Choice(replica, tuple(isr))
    return None


def preferred_leader(replicas: Sequence[int], isr: Sequence[int], is_alive: IsAlive) -> Choice | None:
    """Chooses the first replica of the assignment, None if it is not alive and in sync (REP-29).

    None is answered with PREFERRED_LEADER_NOT_AVAILABLE (80).
    """
    return reassigned_leader(replicas[:1], isr, is_alive)


def shutdown_leader(
    replicas: Sequence[int], isr: Sequence[int], is_alive: IsAlive, is_stopping: Callable[[int], bool]
) -> Choice | None:
    """Chooses the first live ISR member that is not stopping; stopping brokers leave the ISR (REP-29).

    Returns None if there is no such member.
    """
    eligible = tuple(replica for replica in isr if not is_stopping(replica))
    for replica in replicas:
        if replica in eligible and is_alive(replica):
            return Choice(replica, eligible)
    return None


def without_dead(leader: int, isr: Sequence[int], is_alive: IsAlive) -> tuple[int, ...]:
    """Returns the ISR without dead followers (CTL-9); the leader and a sole member stay."""
    isr_left = tuple(replica for replica in isr if replica == leader or is_alive(replica))
    return isr_left or tuple(isr)
