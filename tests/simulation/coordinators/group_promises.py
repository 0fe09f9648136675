"""Promises of groups to their members, and commits in them.

Times are microseconds of the world: one action was before another if its response came before the other's request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.simulation.cluster.promises import BrokenPromise

NOTHING: Final = -1
NEVER_US: Final = 1 << 62

# Group and partition.
Key = tuple[str, int]
# Assigned partitions by seat, which is the group instance id of a static member, else the member id.
Shares = Mapping[str, Sequence[int]]


class Commit:
    """A commit of an offset.

    `known_us` is the time at which a client knew that it took effect; `refused` is True if it certainly did not. A
    commit in a transaction takes effect at `decided_us`, but may be visible later. `behind` is the position at which
    the committed work began.
    """

    __slots__ = (
        "asked_us",
        "behind",
        "client",
        "decided_us",
        "generation",
        "key",
        "known_us",
        "member_id",
        "position",
        "refused",
        "seat",
        "transaction",
    )

    def __init__(
        self, key: Key, position: int, client: str, generation: int, member_id: str, seat: str, asked_us: int
    ) -> None:
        self.key = key
        self.position = position
        self.client = client
        self.generation = generation
        self.member_id = member_id
        self.seat = seat
        self.asked_us = asked_us
        self.known_us = NEVER_US
        self.decided_us = NEVER_US
        self.refused = False
        self.behind = NOTHING
        self.transaction: object | None = None

    def __str__(self) -> str:
        return f"{self.position} of {self.key} by {self.client} in generation {self.generation}"


class Synced(NamedTuple):
    """A member got its assignment, so that its generation is recorded."""

    generation: int
    at_us: int


class _Group:
    def __init__(self) -> None:
        # Every increase of the last generation that is known to be recorded.
        self.synced: list[Synced] = []
        self.submitted: dict[int, list[Shares]] = {}
        self.owners: dict[int, dict[int, str]] = {}
        # By seat and member id: times of request and response of the first assignment.
        self.seats: dict[str, dict[str, tuple[int, int]]] = {}

    def written_before(self, at_us: int) -> int:
        return max((synced.generation for synced in self.synced if synced.at_us < at_us), default=NOTHING)


class GroupPromises:
    """Promises of all groups; methods raise BrokenPromise."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._commits: dict[Key, list[Commit]] = {}
        self._position: dict[Key, int] = {}
        # By key and the position at which the work began.
        self._done: dict[tuple[Key, int], Commit] = {}
        # Called for every transaction whose offsets a client was given.
        self.on_shown: Callable[[object, str], object] = lambda transaction, where: None
        self.commits_known = 0
        self.generations = 0
        self.fetches = 0

    def _group(self, group: str) -> _Group:
        return self._groups.setdefault(group, _Group())

    # -- generations ---------------------------------------------------------------------------------------------------

    def joined(self, group: str, generation: int, client: str, asked_us: int) -> None:
        written = self._group(group).written_before(asked_us)
        if generation < written:
            raise BrokenPromise(f"{client} joins {group} in generation {generation}, after {written} was recorded")

    def submitted(self, group: str, generation: int, shares: Shares) -> None:
        """Notes the assignments that a generation's leader sends."""
        self._group(group).submitted.setdefault(generation, []).append(shares)

    def synced(
        self,
        group: str,
        generation: int,
        client: str,
        member_id: str,
        seat: str,
        share: Sequence[int],
        at: tuple[int, int],
    ) -> None:
        """Checks an assignment that a member got; `at` has the times of request and response."""
        asked_us, at_us = at
        state = self._group(group)
        written = state.written_before(asked_us)
        if generation < written:
            raise BrokenPromise(f"{client} is in generation {generation} of {group}, after {written} was recorded")
        fitting = [
            shares for shares in state.submitted.get(generation, ()) if list(shares.get(seat, ())) == list(share)
        ]
        if not fitting:
            raise BrokenPromise(f"{client} got {share} of {group} in generation {generation}, which no leader assigned")
        state.submitted[generation] = fitting
        owners = state.owners.setdefault(generation, {})
        for index in share:
            owner = owners.setdefault(index, seat)
            if owner != seat:
                raise BrokenPromise(
                    f"partition {index} is assigned to {owner} and {seat} in generation {generation} of {group}"
                )
        if not state.synced or generation > state.synced[-1].generation:
            state.synced.append(Synced(generation, at_us))
            self.generations += 1
        state.seats.setdefault(seat, {}).setdefault(member_id, at)

    # -- commits -------------------------------------------------------------------------------------------------------

    def next_position(self, key: Key, behind: int) -> int:
        """Returns a position that was never committed, so that a position identifies its commit."""
        position = self._position[key] = max(self._position.get(key, 0), behind) + 1
        return position

    def committing(self, commit: Commit) -> None:
        self._commits.setdefault(commit.key, []).append(commit)

    def accepted(self, commit: Commit) -> None:
        """Checks a commit that was answered without error; in a transaction it takes effect later."""
        group = self._group(commit.key[0])
        written = group.written_before(commit.asked_us)
        if commit.generation < written:
            raise BrokenPromise(f"{commit} is acknowledged after generation {written} was recorded")
        own = group.seats.get(commit.seat, {}).get(commit.member_id)
        for holder, (asked_us, answered_us) in group.seats.get(commit.seat, {}).items():
            if own is not None and asked_us > own[1] and answered_us < commit.asked_us:
                raise BrokenPromise(f"{commit} is acknowledged after {holder} replaced the member")

    def acknowledged(self, commit: Commit, at_us: int) -> None:
        """Checks a commit that was answered without error and has taken effect."""
        self.accepted(commit)
        commit.known_us = min(commit.known_us, at_us)
        self.commits_known += 1

    def counts(self, commit: Commit) -> None:
        """Checks that the work of a commit in a committed transaction was done once."""
        before = self._done.setdefault((commit.key, commit.behind), commit)
        if before is not commit:
            raise BrokenPromise(f"the work from {commit.behind} on was done twice: {before} and {commit}")

    def fetched(self, key: Key, position: int, client: str, asked_us: int, at_us: int, *, is_stable: bool) -> None:
        """Checks a fetched position."""
        self.fetches += 1
        commits = self._commits.get(key, ())
        known = [
            commit for commit in commits if commit.known_us < asked_us or (is_stable and commit.decided_us < asked_us)
        ]
        if position == NOTHING:
            if known:
                raise BrokenPromise(f"{client} fetches no offset of {key}; {known[-1]} is lost")
            return
        result = next((commit for commit in commits if commit.position == position), None)
        if result is None or result.refused:
            raise BrokenPromise(f"{client} fetches {position} of {key}, which was never committed")
        for later in known:
            if later is not result and (result.known_us < later.asked_us or result.generation < later.generation):
                raise BrokenPromise(f"{client} fetches {result}; the later {later} is lost")
        result.known_us = min(result.known_us, at_us)
        if result.transaction is not None:
            self.on_shown(result.transaction, f"for {client}, who fetches its offsets")
