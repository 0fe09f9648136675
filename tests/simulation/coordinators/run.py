"""A run of the coordinator simulation: brokers, members, producers and faults chosen by a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from uuid import UUID

from brokers.contract.documents import PartitionStateDocument
from brokers.engine.coordinators.groups import joining
from brokers.engine.coordinators.settings import GROUPS_TOPIC, TRANSACTIONS_TOPIC, CoordinatorSettings, from_overrides
from brokers.engine.handlers.groups import find_coordinator
from tests.simulation.cluster.faults import WEIGHTS
from tests.simulation.cluster.records import TOPIC
from tests.simulation.cluster.stage import BOOT_MS_MAX, Stage
from tests.simulation.coordinators.clients import ClientContext, Machine
from tests.simulation.coordinators.faults import CLIENT_WEIGHTS, CoordinatorFaults
from tests.simulation.coordinators.group_promises import GroupPromises
from tests.simulation.coordinators.ledger import Ledger
from tests.simulation.coordinators.members import Member
from tests.simulation.coordinators.producers import Producer, Transactional
from tests.simulation.coordinators.readers import Observer, Reader
from tests.simulation.coordinators.transaction_promises import TransactionPromises
from tests.simulation.coordinators.workers import Worker

BROKERS: Final = 3
# Partitions of the data topic and of each state topic.
PARTITIONS: Final = 3
STATE_PARTITIONS: Final = 2
GROUPS: Final = ("g0", "g1", "g2")
GROUPS_PER_RUN: Final = 2
# Groups whose members work in transactions.
EXACTLY_ONCE: Final = ("g2",)
# Group instance ids of the members by group, None for dynamic members.
SEATS: Final = {"g0": (None, None, None), "g1": ("i0", "i1", None), "g2": ("j0", None)}
IDS: Final = ("t0", "t1")
# Time to recover after all faults have ended, longer than transactions and sessions even after jumps of clocks.
SETTLE_MS_MAX: Final = 25_000
# Share of steps with a fault; in the others only time passes.
FAULT_SHARE: Final = 0.16

SETTINGS: Final = {
    "offsets.topic.num.partitions": str(STATE_PARTITIONS),
    "offsets.topic.segment.bytes": "1500",
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.segment.bytes": "1500",
    "offsets.commit.timeout.ms": "800",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}


def settings() -> CoordinatorSettings:
    return from_overrides(SETTINGS)


class CoordinatorsRun(Stage):
    """A run with coordinators and their clients; `step` raises BrokenPromise."""

    compacted = (GROUPS_TOPIC, TRANSACTIONS_TOPIC)

    def __init__(self, seed: int, home: Path) -> None:
        super().__init__(seed, settings())
        self.groups = GroupPromises()
        self.transactions = TransactionPromises(PARTITIONS, self.groups)
        self.ledger = Ledger(TOPIC, PARTITIONS, self.disks, self.transactions.on_entry)
        self.client_context = ClientContext(self.context, self.note)
        self.group_names = sorted(self.dice.sample(GROUPS, GROUPS_PER_RUN))
        self.members: list[Member] = []
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.observers: list[Observer] = []
        self.faults = CoordinatorFaults(self)
        self._topics = {TOPIC: PARTITIONS, GROUPS_TOPIC: STATE_PARTITIONS, TRANSACTIONS_TOPIC: STATE_PARTITIONS}
        self._client_count = 0
        self.open()
        try:
            self.start_brokers(BROKERS, home)
            self._boot()
        except BaseException:
            self.close()
            raise
        self._verbs = [*WEIGHTS, *CLIENT_WEIGHTS]
        self._weights = [*WEIGHTS.values(), *CLIENT_WEIGHTS.values()]

    def open(self) -> None:
        super().open()
        self._uuid4 = joining.uuid4
        dice = self.dice
        joining.uuid4 = lambda: UUID(int=dice.getrandbits(128))

    def close(self) -> None:
        joining.uuid4 = self._uuid4
        for machine in self.machines():
            machine.kill(silently=True)
        super().close()

    def _boot(self) -> None:
        ids = list(self.hosts)
        assignment = {index: tuple(self.dice.sample(ids, 3)) for index in range(PARTITIONS)}
        self.create(TOPIC, assignment, {"min.insync.replicas": "2", "segment.bytes": "3000"})
        services = self.first_process().services
        for kind in (find_coordinator.GROUP, find_coordinator.TRANSACTION):
            services.loop.call_soon(find_coordinator.ensure_state_topic, services, kind)
        self.until(lambda: len(self.states()) == sum(self._topics.values()), BOOT_MS_MAX, "the topics are led")
        for group in self.group_names:
            for seat in SEATS[group]:
                self.add_member(group, seat)
        for id in IDS:
            self.add_producer(id)
        for index in range(PARTITIONS):
            self.readers.append(Reader(f"r{index}", index, self.client_context, self.transactions))
        promised = (self.groups, self.transactions)
        self.observers.append(Observer("o0", self.group_names, IDS, PARTITIONS, self.client_context, promised))

    # -- clients -------------------------------------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self._client_count += 1
        return f"{kind}{self._client_count}"

    def add_member(self, group: str, seat: str | None) -> Member:
        if group in EXACTLY_ONCE:
            member: Member = Worker(
                self._name("w"), group, seat, PARTITIONS, self.client_context, self.groups, self.transactions
            )
        else:
            member = Member(self._name("m"), group, seat, PARTITIONS, self.client_context, self.groups)
        self.members.append(member)
        return member

    def add_producer(self, id: str) -> Producer:
        producer = Producer(self._name("p"), id, PARTITIONS, self.client_context, self.transactions)
        self.producers.append(producer)
        return producer

    def machines(self) -> list[Machine]:
        return [*self.members, *self.producers, *self.readers, *self.observers]

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        if self.dice.random() < FAULT_SHARE:
            self.cause_fault(self.faults.do, self.dice.choices(self._verbs, self._weights)[0])
        self.pass_time()

    def check_invariants(self) -> None:
        for host in self.hosts.values():
            process = host.process
            if process is not None and process.loop.faults:
                raise AssertionError(process.loop.faults[0])
        self.ledger.check_invariants(self.hosts.values())
        if not self._is_calm():
            self.client_context.disturbed_us = self.world.now_us

    def _is_calm(self) -> bool:
        """True if there is no fault in brokers and network, and all replicas are in sync."""
        network = self.network
        if network.cut or network.slow_ms or self.ensemble.is_down or not self.all_registered():
            return False
        return all(state.leader >= 0 and len(state.isr) == BROKERS for state in self.states().values())

    def check(self) -> None:
        """Does nothing: the steps check everything."""

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Ends all faults: transactions must end, groups become stable, and nothing may be lost."""
        self.note("** all faults end")
        self.faults.heal()
        for machine in self.machines():
            if isinstance(machine, Transactional):
                machine.rests = True
        self.complete(self._pending, SETTLE_MS_MAX)
        for topic, partitions in self._topics.items():
            self._all_stable(topic, partitions)
        self._read_all()
        for index, state in self.states_of(TOPIC, PARTITIONS).items():
            for id in state.isr:
                process = self.hosts[id].process
                assert process is not None
                self.ledger.compare(process, index)
        self.transactions.nothing_open()

    def _pending(self) -> str:
        if not self.all_registered():
            return "not everybody is registered"
        for machine in self.machines():
            if isinstance(machine, Transactional) and not machine.is_over and not machine.is_idle:
                return f"{machine.name} has not ended its transaction"
        for topic, partitions in self._topics.items():
            for index, state in self.states_of(topic, partitions).items():
                reason = self.incomplete_partition(topic, index, state)
                if reason and topic == TOPIC:
                    return f"{topic}: {reason}"
                unstable = self._unstable(topic, index, state)
                if unstable:
                    return unstable
        return next((reason for reason in map(self._unstable_group, self.group_names) if reason), "")

    def _unstable(self, topic: str, index: int, state: PartitionStateDocument) -> str:
        host = self.hosts.get(state.leader)
        partition = None if host is None or host.process is None else host.process.table.get(topic, index)
        if partition is None:
            return f"{topic}-{index} is led by {state.leader}"
        if partition.last_stable_offset < partition.high_watermark:
            return f"{topic}-{index} is stable up to {partition.last_stable_offset} of {partition.high_watermark}"
        return ""

    def _all_stable(self, topic: str, partitions: int) -> None:
        for index, state in self.states_of(topic, partitions).items():
            reason = self._unstable(topic, index, state)
            assert not reason, reason

    def _unstable_group(self, group: str) -> str:
        """Returns why the live members do not own all partitions in one generation, "" if they do."""
        living = [member for member in self.members if member.group == group and not member.is_over]
        if not living:
            return ""
        owned = [index for member in living for index in member.owns or ()]
        if any(member.owns is None for member in living) or sorted(owned) != list(range(PARTITIONS)):
            return f"{group} is owned by {[(member.name, member.generation, member.owns) for member in living]}"
        return ""

    def _read_all(self) -> None:
        """Fetches all committed offsets once more."""
        wanted = [*IDS, *((group, index) for group in self.group_names for index in range(PARTITIONS))]
        sent: dict[Any, bool] = dict.fromkeys(wanted, False)
        for observer in self.observers:
            observer.sent = sent
        self.complete(lambda: "" if all(sent.values()) else f"nobody tells offsets: {sent}", ms_max=10_000)
        self.complete(self._unread, ms_max=10_000)

    def _unread(self) -> str:
        """Returns the readers that are behind; markers of recently fenced producers may still be written."""
        behind = [
            (reader.name, reader.position)
            for reader in self.readers
            if reader.position != self.ledger.end(reader.index)
        ]
        return f"readers wait: {behind}" if behind else ""

    def some_topic(self) -> str:
        return self.dice.choice(list(self._topics))

    def states(self) -> dict[tuple[str, int], PartitionStateDocument]:
        return {
            (topic, index): state
            for topic, partitions in self._topics.items()
            for index, state in self.states_of(topic, partitions).items()
        }
