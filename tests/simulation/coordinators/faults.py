"""Faults of clients and of their network, in addition to those of brokers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from brokers.engine.partitions.cleaning import Cleaner
from brokers.engine.storage.compaction.job import Cleaned, CleaningFailed, Event, Finished
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.run import Run
from brokers.engine.storage.compaction.settings import CleanerSettings
from brokers.engine.storage.files import StorageFailed
from tests.simulation.cluster.broker import Process
from tests.simulation.cluster.faults import Faults
from tests.simulation.cluster.network import CLIENTS

if TYPE_CHECKING:
    from tests.simulation.coordinators.run import CoordinatorsRun

CLIENT_WEIGHTS: Final = {
    "member_dies": 5, "member_pauses": 6, "client_resumes": 14, "member_leaves": 3, "member_comes": 8,
    "second_in_seat": 2, "producer_dies": 4, "producer_pauses": 5, "second_producer": 5, "producer_comes": 8,
    "clients_cut_off": 6, "compaction": 12,
}  # fmt: skip
MEMBERS_MAX: Final = 4
PRODUCERS_MAX: Final = 3


def _clean(process: Process) -> None:
    """Runs the cleaner like `assembly.cleaning`, but in this process."""
    cleaner = Cleaner(process.table, CleanerSettings())
    now_ms = process.clock.now_ms()
    while (work := cleaner.plan(now_ms)) is not None:
        checkpoint = partial(cleaner.checkpoint, work.partition.log.root)
        events: list[Event] = []
        try:
            work.flush_log()
            cleaner.finish_flush(work)
            if work.is_first:
                checkpoint().write()
            Run(work.job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
            for event in events:
                if isinstance(event, Cleaned):
                    assert cleaner.swap_in(work, event, now_ms), "nobody else changes the log meanwhile"
                elif isinstance(event, Finished):
                    cleaner.on_finished(work, event)
                    checkpoint().write()
        except (CleaningFailed, OSError, StorageFailed):
            # An error of the disk, which other parts will meet as well.
            cleaner.abandon(work)
            return


class CoordinatorFaults(Faults):
    """The verbs of brokers and of clients."""

    # Transactions time out by the wall clock of their coordinator, so jumps are bounded by what a run can wait for.
    JUMPS_MS = (-2_000, 700, 1_800, 6_000)

    def __init__(self, run: CoordinatorsRun) -> None:
        super().__init__(run)
        self._clients = run

    def _pick(self, machines: list[Any], fits: Callable[[Any], bool] = lambda machine: True) -> Any:
        fitting = [machine for machine in machines if not machine.is_over and fits(machine)]
        return self._dice.choice(fitting) if fitting else None

    def _kill(self, machine: Any) -> str:
        if machine is None:
            return ""
        silently = self._dice.random() < 0.4
        machine.kill(silently=silently)
        return f"{machine.name}{', silently' if silently else ''}"

    def _pause(self, machine: Any) -> str:
        if machine is None:
            return ""
        machine.pause()
        return str(machine.name)

    # -- members -------------------------------------------------------------------------------------------------------

    def member_dies(self) -> str:
        return self._kill(self._pick(self._clients.members))

    def member_pauses(self) -> str:
        return self._pause(self._pick(self._clients.members, lambda member: not member.is_paused))

    def client_resumes(self) -> str:
        machine = self._pick([*self._clients.members, *self._clients.producers], lambda machine: machine.is_paused)
        if machine is None:
            return ""
        machine.resume()
        return str(machine.name)

    def member_leaves(self) -> str:
        member = self._pick(self._clients.members, lambda member: not member.is_paused)
        if member is None:
            return ""
        member.leaves = True
        return str(member.name)

    def member_comes(self) -> str:
        """Adds a member with a free group instance id or without one."""
        from tests.simulation.coordinators.run import SEATS

        group = self._dice.choice(self._clients.group_names)
        living = [member for member in self._clients.members if member.group == group and not member.is_over]
        if len(living) >= MEMBERS_MAX:
            return ""
        taken = {member.instance_id for member in living}
        free = [seat for seat in SEATS[group] if seat is None or seat not in taken]
        member = self._clients.add_member(group, self._dice.choice(free) if free else None)
        return f"{member.name} in {group}{'' if member.instance_id is None else f' as {member.instance_id}'}"

    def second_in_seat(self) -> str:
        """Starts a static member while another one with its group instance id still runs."""
        member = self._pick(self._clients.members, lambda member: member.instance_id is not None)
        if member is None:
            return ""
        second = self._clients.add_member(member.group, member.instance_id)
        return f"{second.name} as {second.instance_id}, as {member.name}"

    # -- producers -----------------------------------------------------------------------------------------------------

    def producer_dies(self) -> str:
        return self._kill(self._pick(self._clients.producers))

    def producer_pauses(self) -> str:
        return self._pause(self._pick(self._clients.producers, lambda producer: not producer.is_paused))

    def second_producer(self) -> str:
        """Starts a producer with a transactional id that is in use, possibly by a paused producer."""
        producer = self._pick(self._clients.producers)
        if producer is None or self._live_offsets(producer.id) >= PRODUCERS_MAX:
            return ""
        return f"{self._clients.add_producer(producer.id).name} of {producer.id}, as {producer.name}"

    def producer_comes(self) -> str:
        from tests.simulation.coordinators.run import IDS

        id = self._dice.choice(IDS)
        return "" if self._live_offsets(id) else f"{self._clients.add_producer(id).name} of {id}"

    def _live_offsets(self, id: str) -> int:
        return sum(1 for producer in self._clients.producers if producer.id == id and not producer.is_over)

    # -- ways ----------------------------------------------------------------------------------------------------------

    def clients_cut_off(self) -> str:
        """Cuts one direction between the clients and one broker."""
        id = self._dice.choice(list(self._run.hosts))
        source, target = (id, CLIENTS) if self._dice.random() < 0.6 else (CLIENTS, id)
        self._run.network.sever(source, target)
        return f"from {source} to {target}"

    # -- logs ----------------------------------------------------------------------------------------------------------

    def compaction(self) -> str:
        """Compacts the state topics."""
        host = self._draw_host(lambda host: host.is_running and host.process.is_listening)  # type: ignore[union-attr]
        if host is None or host.process is None:
            return ""
        host.process.loop.call_soon(_clean, host.process)
        return f"b{host.id}"

    # -- the end -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        super().heal()
        for machine in self._clients.machines():
            if machine.is_paused:
                machine.resume()
