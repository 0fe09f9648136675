"""Reports of this broker to the controller: each second the stored bytes of the instances whose partitions it leads.
The response changes the number of bytes that the broker may append for each of them (CKA-26).

The controller is reached over a separate connection; a broker that is the controller answers itself. Logs are measured
in parts, so that other requests are served in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

import structlog

from brokers.engine.assembly.peer_connections import peers_for
from brokers.engine.assembly.storage_use import InstanceStorage
from brokers.engine.capacity.credits import StorageCredits
from brokers.engine.capacity.ledger import Bought, FilledInstance, ReportedUse, StorageGrant, StorageLedger
from brokers.engine.capacity.room import UNBOUNDED, StorageRoom
from brokers.engine.cluster.image import ClusterImage, InstanceImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.lifecycle import Periodic
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import (
    AllotStorageRequest,
    AllotStorageResponse,
    StorageChange,
    StorageLine,
)
from brokers.engine.replication.interfaces import Connect
from brokers.engine.replication.peers import PeerUnavailable
from instances.naming import split_internal

log = structlog.get_logger(__name__)

REPORT_INTERVAL_S: Final = 1.0
# Minimum pause between reports, however often the bytes that instances may append run low.
REPORT_PAUSE_S: Final = 0.01
# Interval at which instances without traffic are measured.
IDLE_INTERVAL_MS: Final = 5_000
LINES_PER_REPORT_MAX: Final = 200
# Percentage of its capacity from which an instance is reported as filled: below the lowest threshold of warnings to
# tenants, so that the end of a warning is visible as well.
FILLED_PERCENT: Final = 70
REPORT_TIMEOUT_MS: Final = 2_000
API_NAME: Final = ApiKey.ALLOT_STORAGE.name.lower()
LATEST_VERSION: Final = ADVERTISED_INTERNAL[ApiKey.ALLOT_STORAGE][1]
TRIM_INTERVAL_S: Final = 1.0


class StorageCapacity:
    """Sends this broker's reports of stored bytes, and on the controller answers those of all brokers.

    A `StorageRoom` is the number of bytes that an instance may still append here. Create this object before the
    partitions, which get the room of their instance from it.
    """

    def __init__(self, services: BrokerServices, connect: Connect, use: InstanceStorage) -> None:
        self._services = services
        self.credits = StorageCredits()
        self.use = use
        self._ledger: StorageLedger | None = None
        self._ledger_controller_epoch = -1
        self._peers = peers_for("storage", services, connect)
        self._wake = asyncio.Event()
        self._all_measured_ms = 0
        # Time of the controller's last response.
        self.last_response_ms = 0
        # True if the current controller has received a complete report.
        self._is_complete = False
        self._initial_bytes: Counter[str] = Counter()
        self._broker_epoch: int | None = None
        self._full_instance_ids: set[str] = set()
        # Refusals of deleted instances.
        self._refused_count_of_deleted = 0
        services.storage.table.room_of = self.room_of
        services.accounting.allot_storage = self.handle_report
        services.metadata.current.subscribe(self.on_image)

    # -- room of each instance -----------------------------------------------------------------------------------------

    def room_of(self, topic: str) -> StorageRoom:
        """Returns the room of the instance of an internal topic name; called through `PartitionTable.room_of`."""
        instance_id, _ = split_internal(topic)
        return UNBOUNDED if instance_id is None else self.room_of_instance(instance_id)

    def room_of_instance(self, instance_id: str) -> StorageRoom:
        room = self.credits.rooms.get(instance_id)
        if room is None:
            room = self.credits.rooms[instance_id] = StorageRoom(request_more=self._wake.set)
            instance = self._services.metadata.current.image.instances.get(instance_id)
            if instance is not None:
                self.credits.initialize(room, instance.document.capacity_bytes, self._initial_bytes.pop(instance_id, 0))
        return room

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.brokers is not after.brokers:
            self._peers.on_brokers(after.brokers)
        if not before.brokers and after.brokers:
            self._initial_bytes = self.use.local_bytes(after)
        for instance_id, room in tuple(self.credits.rooms.items()):
            instance = after.instances.get(instance_id)
            if after.is_instance_deleted(instance_id):
                self._refused_count_of_deleted += room.refused_count
                self.credits.forget(instance_id)
                self.use.forget(instance_id)
                self._full_instance_ids.discard(instance_id)
            elif instance is not None and instance.document.capacity_bytes != room.bought_bytes:
                self.credits.set_bought(instance_id, instance.document.capacity_bytes)
                self._wake.set()

    async def on_registered(self, broker_epoch: int) -> None:
        """Discards the credits of an earlier session of the process: other brokers may have been granted them since."""
        if self._broker_epoch is not None:
            self.credits.reset(self.use.bytes_by_instance)
            self._is_complete = False
        self._broker_epoch = broker_epoch

    def is_full(self, instance_id: str) -> bool:
        room = self.credits.rooms.get(instance_id)
        return room is not None and room.is_full

    def instances_above(self, percent: int = FILLED_PERCENT) -> list[FilledInstance] | None:
        """Returns the instances that use `percent` of their capacity or more; None if this broker is not the controller
        or does not know all instances yet.
        """
        services = self._services
        image = services.metadata.current.image
        if (
            self._ledger is None
            or image.controller_id != services.broker_id
            or self._ledger_controller_epoch != image.controller_epoch
        ):
            return None
        return self._ledger.filled_instances(percent, services.clock.monotonic_ms())

    @property
    def refused_count(self) -> int:
        """Returns the number of produces to partitions refused since the start."""
        return self._refused_count_of_deleted + sum(room.refused_count for room in self.credits.rooms.values())

    def full_instances(self) -> list[str]:
        return sorted(instance_id for instance_id, room in self.credits.rooms.items() if room.is_full)

    # -- reports -------------------------------------------------------------------------------------------------------

    def start_periodic(self, periodic: Periodic) -> None:
        periodic.spawn(self._run())
        periodic.every(TRIM_INTERVAL_S, self._peers.trim)

    def close(self) -> None:
        self._peers.close()
        self.use.close()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REPORT_INTERVAL_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self._report()
            await asyncio.sleep(REPORT_PAUSE_S)

    async def _report(self) -> None:
        if not self.use.is_known:
            return
        image = self._services.metadata.current.image
        if image.controller_epoch != self.credits.controller_epoch:
            self.credits.on_controller_epoch(image.controller_epoch)
            self._is_complete = False
        now_ms = self._services.clock.monotonic_ms()
        measures_all = not self._is_complete or now_ms - self._all_measured_ms >= IDLE_INTERVAL_MS
        if measures_all:
            self._all_measured_ms = now_ms
        instance_ids = [
            id for id, room in self.credits.rooms.items() if measures_all or is_in_use(room) or self.use.is_outdated(id)
        ]
        used_bytes = await self.use.measure(instance_ids)
        reports = self.credits.reports(used_bytes)
        parts = [reports[at : at + LINES_PER_REPORT_MAX] for at in range(0, len(reports), LINES_PER_REPORT_MAX)] or [[]]
        for number, part in enumerate(parts, 1):
            is_complete = self._is_complete or (measures_all and number == len(parts))
            if not await self._send(image, part, is_complete):
                self.credits.on_unanswered(reports[(number - 1) * LINES_PER_REPORT_MAX :])
                self._is_complete = False
                return
            self._is_complete = is_complete

    async def _send(self, image: ClusterImage, reports: Sequence[ReportedUse], is_complete: bool) -> bool:
        """Sends a report. Returns True if the controller answered."""
        request = AllotStorageRequest(
            broker_id=self._services.broker_id,
            broker_epoch=-1 if self._broker_epoch is None else self._broker_epoch,
            controller_epoch=image.controller_epoch,
            is_complete=is_complete,
            lines=[
                StorageLine(
                    instance_id=report.instance_id,
                    used_bytes=report.used_bytes,
                    left_bytes=report.left_bytes,
                    applied=report.applied,
                    wanted_bytes=report.wanted_bytes,
                    is_busy=report.is_busy,
                )
                for report in reports
            ],
        )
        if image.controller_id == self._services.broker_id:
            response = self.handle_report(request)
        else:
            try:
                response = await self._peers.request(
                    image.controller_id, ApiKey.ALLOT_STORAGE, _version(image), request, REPORT_TIMEOUT_MS
                )
            except PeerUnavailable:
                return False
        if response.error_code or self._services.metadata.current.image.controller_epoch != image.controller_epoch:
            return False
        changes = [
            StorageGrant(
                change.instance_id,
                change.number,
                change.delta_bytes,
                change.used_bytes,
                change.free_bytes,
                change.is_full,
                change.reported_bytes,
                change.counted_bytes,
            )
            for change in response.changes
        ]
        self.last_response_ms = self._services.clock.monotonic_ms()
        if self.credits.apply(image.controller_epoch, reports, changes):
            self._wake.set()
        self._log_full(changes)
        return True

    def _log_full(self, changes: Sequence[StorageGrant]) -> None:
        for change in changes:
            if change.is_full == (change.instance_id in self._full_instance_ids):
                continue
            fields = {"instance_id": change.instance_id, "used_bytes": change.used_bytes}
            if change.is_full:
                self._full_instance_ids.add(change.instance_id)
                log.info("instance_storage_full", **fields)
            else:
                self._full_instance_ids.discard(change.instance_id)
                log.info("instance_storage_has_room", **fields)

    # -- as controller -------------------------------------------------------------------------------------------------

    def handle_report(self, request: AllotStorageRequest) -> AllotStorageResponse:
        """Answers a broker's report; called through `AccountingServices.allot_storage`."""
        image, now_ms = self._services.metadata.current.image, self._services.clock.monotonic_ms()
        if image.controller_id != self._services.broker_id or image.controller_epoch != request.controller_epoch:
            return AllotStorageResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        if self._ledger is None or self._ledger_controller_epoch != image.controller_epoch:
            self._ledger, self._ledger_controller_epoch = StorageLedger(now_ms), image.controller_epoch
        ledger, broker_id = self._ledger, request.broker_id
        ledger.set_live_brokers(image.brokers.keys(), now_ms)
        if not request.lines:
            ledger.forget_instances(image.instances.keys())
        ledger.begin_report(broker_id, request.broker_epoch, request.is_complete, now_ms)
        changes = []
        for line in request.lines:
            instance = image.instances.get(line.instance_id)
            if instance is not None:
                reported = ReportedUse(
                    line.instance_id,
                    line.used_bytes,
                    line.left_bytes,
                    line.applied,
                    line.wanted_bytes,
                    line.is_busy,
                )
                changes.append(ledger.handle_report(broker_id, reported, _bought(instance), now_ms))
        answered = {change.instance_id for change in changes}
        for instance_id in ledger.instances_to_review(broker_id):
            instance = image.instances.get(instance_id)
            if instance is not None and instance_id not in answered:
                change = ledger.review(broker_id, instance_id, _bought(instance), now_ms)
                if change is not None:
                    changes.append(change)
        return AllotStorageResponse(changes=[StorageChange(**change._asdict()) for change in changes])


def _version(image: ClusterImage) -> int:
    """Returns the version of requests: the latest that this broker and the controller know."""
    controller = image.brokers.get(image.controller_id)
    return min(LATEST_VERSION, controller.latest_version(API_NAME)) if controller is not None else 0


def _bought(instance: InstanceImage) -> Bought:
    return Bought(instance.document.capacity_bytes, len(instance.document.endpoints))


def is_in_use(room: StorageRoom) -> bool:
    """True if the instance's figures change now: it appended since the last report, lacks room, or is full."""
    return room.appended_bytes > 0 or room.refused_append_bytes > 0 or room.is_full
