"""One broker's side of the exchange with the controller (`ledger`): what it reports, and what it makes of the answer.

A room begins with a thousandth of what was bought, and with less where the logs on disk leave less: a broker that has
just started must not refuse what there is room for, and must not forget what is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from brokers.engine.capacity.ledger import UNKNOWN, Change, ReportedUse
from brokers.engine.capacity.room import StorageRoom

START_PART: Final = 1_000
START_FREE_PART: Final = 8
# Below this part of what it had, a room is asked for more.
LOW_PART: Final = 2
NO_TERM: Final = -1


@dataclass(slots=True)
class _Reported:
    """What the controller knows: the last line it answered."""

    used_bytes: int = UNKNOWN
    left_bytes: int = UNKNOWN
    applied: int = 0


class StorageCredits:
    """The rooms of the instances that this broker holds something of. `term` is the epoch of the controller that is
    reported to: another one knows of nothing, and what the last one still answers is not heard.
    """

    def __init__(self) -> None:
        self.rooms: dict[str, StorageRoom] = {}
        self.totals: dict[str, Change] = {}
        self.term = NO_TERM
        self._reported: dict[str, _Reported] = {}

    def begin(self, room: StorageRoom, bought_bytes: int, held_bytes: int) -> None:
        """The first word of what was bought. `held_bytes`: what the logs here are known to take on all replicas."""
        room.bought_bytes = bought_bytes
        room.left_bytes = max(0, min(bought_bytes // START_PART, (bought_bytes - held_bytes) // START_FREE_PART))
        room.low_bytes = room.left_bytes
        room.is_full = held_bytes >= bought_bytes

    def begin_again(self, held_bytes: Mapping[str, int]) -> None:
        """The broker was out of the cluster: what it had to spend was given to others."""
        for instance_id, room in self.rooms.items():
            self.begin(room, room.bought_bytes, held_bytes.get(instance_id, 0))
        self._reported.clear()

    def on_term(self, term: int) -> None:
        if term != self.term:
            self.term = term
            self._reported.clear()

    def lines(self, used_bytes: Mapping[str, int]) -> list[ReportedUse]:
        """What the controller does not know yet of the instances that were measured."""
        result = []
        for instance_id, used in used_bytes.items():
            room = self.rooms.get(instance_id)
            if room is None:
                continue
            known = self._reported.setdefault(instance_id, _Reported())
            is_known = known.used_bytes == used and known.left_bytes == room.left_bytes
            if is_known and not room.wanted_bytes:
                continue
            result.append(
                ReportedUse(instance_id, used, room.left_bytes, known.applied, room.wanted_bytes, room.spent_bytes > 0)
            )
            room.spent_bytes = room.wanted_bytes = 0
        return result

    def apply(self, term: int, lines: Iterable[ReportedUse], changes: Iterable[Change]) -> bool:
        """The answers to `lines`, and what else the controller changed. What was appended meanwhile is in `left_bytes`
        already. Whether something was taken back: the next report, which says so, is to come soon.
        """
        if term != self.term:
            return False
        sent = {line.instance_id: line for line in lines}
        is_taken_back = False
        for change in changes:
            line, room = sent.get(change.instance_id), self.rooms.get(change.instance_id)
            if room is None:
                continue
            known = self._reported.setdefault(change.instance_id, _Reported())
            if line is not None:
                known.used_bytes, known.left_bytes = line.used_bytes, line.left_bytes
            known.applied = change.number
            is_taken_back |= change.delta_bytes < 0
            room.left_bytes += change.delta_bytes
            room.free_bytes = change.free_bytes
            room.is_full = change.is_full
            if change.delta_bytes > 0 or room.left_bytes < room.low_bytes:
                room.low_bytes = max(0, room.left_bytes) // LOW_PART
            self.totals[change.instance_id] = change
        return is_taken_back

    def on_lost(self) -> None:
        """A report was not answered: what the controller knows is not known, and it is told everything again."""
        for known in self._reported.values():
            known.used_bytes = UNKNOWN

    def bought(self, instance_id: str, bought_bytes: int) -> None:
        """More was bought, or less: the controller is to look again."""
        self.rooms[instance_id].bought_bytes = bought_bytes
        self._reported.setdefault(instance_id, _Reported()).used_bytes = UNKNOWN

    def forget(self, instance_id: str) -> None:
        self.rooms.pop(instance_id, None)
        self.totals.pop(instance_id, None)
        self._reported.pop(instance_id, None)
