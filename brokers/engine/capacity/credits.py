"""A broker's side of the exchange of storage credits with the controller (`ledger`): its reports and their answers.

A `StorageRoom` begins with a thousandth of the bought storage, or with an eighth of the part that the logs on disk
leave free if that is less: a broker that has just started must neither refuse records that fit nor accept records for a
full instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from brokers.engine.capacity.ledger import UNKNOWN, ReportedUse, StorageGrant
from brokers.engine.capacity.room import StorageRoom

# A room begins with the bought bytes divided by START_PART, at most with the unused bytes divided by START_FREE_PART.
START_CREDIT_DIVISOR: Final = 1_000
START_FREE_DIVISOR: Final = 8
# More is requested when less than the last credit divided by this is left.
LOW_MARK_DIVISOR: Final = 2
NO_CONTROLLER_EPOCH: Final = -1


@dataclass(slots=True)
class _AnsweredReport:
    """The last report of an instance that the controller answered."""

    used_bytes: int = UNKNOWN
    left_bytes: int = UNKNOWN
    applied: int = 0


class StorageCredits:
    """Storage rooms of the instances that have partitions on this broker, and their exchange with the controller.

    `controller_epoch` is that of the current controller. A new controller knows no reports, and answers of the previous
    one are ignored. `grants_by_instance` has the last answer for each instance.
    """

    def __init__(self) -> None:
        self.rooms: dict[str, StorageRoom] = {}
        self.grants_by_instance: dict[str, StorageGrant] = {}
        self.controller_epoch = NO_CONTROLLER_EPOCH
        self._answered_reports: dict[str, _AnsweredReport] = {}

    def initialize(self, room: StorageRoom, bought_bytes: int, local_log_bytes: int) -> None:
        """Initialises a room. `local_log_bytes` is the size of this broker's logs times their number of replicas."""
        room.bought_bytes = bought_bytes
        unused_bytes = bought_bytes - local_log_bytes
        room.credit_bytes = max(0, min(bought_bytes // START_CREDIT_DIVISOR, unused_bytes // START_FREE_DIVISOR))
        room.low_mark_bytes = room.credit_bytes
        room.is_full = local_log_bytes >= bought_bytes

    def reset(self, log_bytes_by_instance: Mapping[str, int]) -> None:
        """Initialises all rooms again after the session was lost: other brokers may have been granted the credits."""
        for instance_id, room in self.rooms.items():
            self.initialize(room, room.bought_bytes, log_bytes_by_instance.get(instance_id, 0))
        self._answered_reports.clear()

    def on_controller_epoch(self, controller_epoch: int) -> None:
        """Sets the epoch of the current controller; every instance is reported again to another controller."""
        if controller_epoch != self.controller_epoch:
            self.controller_epoch = controller_epoch
            self._answered_reports.clear()

    def reports(self, used_bytes: Mapping[str, int]) -> list[ReportedUse]:
        """Returns a report for each measured instance whose current figures the controller does not know.

        `used_bytes` has the measured instances. The counters of the rooms since the last report start again at 0.
        """
        result = []
        for instance_id, used in used_bytes.items():
            room = self.rooms.get(instance_id)
            if room is None:
                continue
            answered = self._answered_reports.setdefault(instance_id, _AnsweredReport())
            is_reported = answered.used_bytes == used and answered.left_bytes == room.credit_bytes
            if is_reported and not room.refused_append_bytes:
                continue
            result.append(
                ReportedUse(
                    instance_id,
                    used,
                    room.credit_bytes,
                    answered.applied,
                    room.refused_append_bytes,
                    room.appended_bytes > 0,
                )
            )
            room.appended_bytes = room.refused_append_bytes = 0
        return result

    def apply(self, controller_epoch: int, reports: Iterable[ReportedUse], changes: Iterable[StorageGrant]) -> bool:
        """Applies the controller's answers to `reports` and its other changes.

        Records appended since the report are already subtracted from `credit_bytes`. Returns True if credit was
        taken back: the next report, which confirms that, should then follow soon.
        """
        if controller_epoch != self.controller_epoch:
            return False
        reports_by_instance = {report.instance_id: report for report in reports}
        is_taken_back = False
        for change in changes:
            report, room = reports_by_instance.get(change.instance_id), self.rooms.get(change.instance_id)
            if room is None:
                continue
            answered = self._answered_reports.setdefault(change.instance_id, _AnsweredReport())
            if report is not None:
                answered.used_bytes, answered.left_bytes = report.used_bytes, report.left_bytes
            answered.applied = change.number
            is_taken_back |= change.delta_bytes < 0
            room.credit_bytes += change.delta_bytes
            room.free_bytes = change.free_bytes
            room.is_full = change.is_full
            if change.delta_bytes > 0 or room.credit_bytes < room.low_mark_bytes:
                room.low_mark_bytes = max(0, room.credit_bytes) // LOW_MARK_DIVISOR
            self.grants_by_instance[change.instance_id] = change
        return is_taken_back

    def on_unanswered(self, reports: Iterable[ReportedUse]) -> None:
        """Makes the next report include all instances again, and the counters of `reports`, which were not answered
        and may be lost.
        """
        for report in reports:
            room = self.rooms.get(report.instance_id)
            if room is not None:
                room.refused_append_bytes = max(room.refused_append_bytes, report.wanted_bytes)
                # One byte is enough: the controller learns only if any bytes were appended.
                room.appended_bytes += report.is_busy
        for answered in self._answered_reports.values():
            answered.used_bytes = UNKNOWN

    def set_bought(self, instance_id: str, bought_bytes: int) -> None:
        """Sets the amount of bought storage, and makes the next report include the instance."""
        self.rooms[instance_id].bought_bytes = bought_bytes
        self._answered_reports.setdefault(instance_id, _AnsweredReport()).used_bytes = UNKNOWN

    def forget(self, instance_id: str) -> None:
        self.rooms.pop(instance_id, None)
        self.grants_by_instance.pop(instance_id, None)
        self._answered_reports.pop(instance_id, None)
