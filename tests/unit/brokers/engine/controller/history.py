"""A cluster that controllers, leaders and operators change step by step; `promises` checks the invariants after each
step.

There is one tree (`topics`, `brokers`, the controller's epoch) and any number of controllers, each with the image that
it was shown last. Deposed controllers go on until a write fails on its guard. Leaders write ISRs by compare-and-set. A
log is a list of record numbers; a record on every member of the ISR is committed.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from brokers.contract.documents import PartitionStateDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster import incarnations
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite
from brokers.engine.cluster.errors import InvalidReplicaAssignment
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.cluster.reassignment_plans import Assignment, state_after
from brokers.engine.controller.decide import decide
from brokers.engine.controller.events import (
    BalanceDue,
    ControllerState,
    CreateSystemTopic,
    Deposed,
    Elected,
    Event,
    FinishDeletion,
    FinishReassignments,
    GrowSystemTopic,
    ImageChanged,
    Instruction,
    ReconcileAgain,
    StatesWritten,
    TopicApplied,
    WriteStates,
)

Key = tuple[str, int]


class Overtaken(Exception):
    """Raised when a compare-and-set finds another version."""


@dataclass
class Controller:
    state: ControllerState
    orders: deque[Instruction] = field(default_factory=deque)
    again: set[str] = field(default_factory=set)


@dataclass
class Replicas:
    """The logs of one partition, by broker. `fetched` is the leader's knowledge of each follower: its incarnation, its
    leader epoch and its end offset.
    """

    logs: dict[int, list[int]] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    fetched: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)


class History:
    def __init__(self, brokers: Iterable[int]) -> None:
        self.zxid = 100
        self.epoch = 0
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicImage] = {}
        self.replicas: dict[Key, Replicas] = {}
        self.controllers: dict[int, Controller] = {}
        self.lossy: set[Key] = set()
        self._records = itertools.count(1)
        for id in brokers:
            self.start(id)

    # --- the tree -------------------------------------------------------------------------------------------------

    def image(self) -> ClusterImage:
        return ClusterImage("cl").with_changes(
            ImageDelta(
                brokers=dict(self.brokers), topics=dict(self.topics), controller_id=1, controller_epoch=self.epoch
            )
        )

    def partition(self, key: Key) -> PartitionImage:
        return self.topics[key[0]].partitions[key[1]]

    def _put(self, name: str, *partitions: PartitionImage, moved: bool = False) -> None:
        topic = self.topics[name]
        changed = {partition.index: partition for partition in partitions}
        kept = tuple(changed.get(partition.index, partition) for partition in topic.partitions)
        self.topics[name] = replace(topic, partitions=kept, version=topic.version + moved)

    def write(self, key: Key, document: PartitionStateDocument, version: int | None) -> None:
        """Write a partition state by compare-and-set."""
        present = self.partition(key)
        if present.version != version:
            raise Overtaken
        self.zxid += 1
        self._put(
            key[0],
            replace(
                present,
                leader=document.leader,
                leader_epoch=document.leader_epoch,
                isr=document.isr,
                isr_epochs=document.isr_broker_epochs,
                controller_epoch=document.controller_epoch,
                version=0 if version is None else version + 1,
                written_at=self.zxid,
            ),
        )

    # --- brokers --------------------------------------------------------------------------------------------------

    def start(self, id: int) -> None:
        self.zxid += 1
        self.brokers[id] = BrokerInfo(id, "127.0.0.1", 24000 + id, 24050 + id, None, self.zxid)

    def kill(self, id: int) -> None:
        del self.brokers[id]
        self.controllers.pop(id, None)

    def lose_tail(self, id: int) -> None:
        """Drop the unflushed tails of a broker whose machine failed. This counts as one failure: no other failure may
        take the last in-sync member of the same incarnation before the controller has reacted to it.
        """
        for key, replicas in self.replicas.items():
            log = replicas.logs.get(id)
            if log and id in self.partition(key).isr:
                del log[len(log) // 2 :]
                self.lossy.add(key)

    def may_lose(self, id: int) -> bool:
        """Return whether every partition would keep an in-sync member of the same incarnation if `id` lost its
        tails.
        """
        return all(
            any(other != id and self.is_same_incarnation(key, other) for other in self.partition(key).isr)
            for key in self.replicas
            if id in self.partition(key).isr
        )

    def may_die(self, id: int) -> bool:
        """Return whether `id` may stop with its logs intact: partitions where a member lost its tail must keep another
        in-sync member of the same incarnation.
        """
        for key in list(self.lossy):
            if all(self.is_same_incarnation(key, member) for member in self.partition(key).isr):
                self.lossy.discard(key)
        return all(
            any(other != id and self.is_same_incarnation(key, other) for other in self.partition(key).isr)
            for key in self.lossy
        )

    def stop(self, id: int) -> None:
        self.brokers[id] = replace(self.brokers[id], stopping=True)

    def is_same_incarnation(self, key: Key, id: int) -> bool:
        partition = self.partition(key)
        if id not in self.brokers or id not in partition.isr:
            return False
        return self.brokers[id].epoch == partition.isr_epochs[partition.isr.index(id)]

    def leads(self, key: Key) -> bool:
        """Return whether the partition has a leader that accepts records."""
        leader = self.partition(key).leader
        return leader != NO_LEADER and self.is_same_incarnation(key, leader)

    # --- topics and operators -------------------------------------------------------------------------------------

    def create(self, name: str, *replicas: tuple[int, ...]) -> None:
        partitions = tuple(PartitionImage(index, brokers) for index, brokers in enumerate(replicas))
        self.topics[name] = TopicImage(name, name, None, random.Random(name).randbytes(16), partitions, {})
        for index in range(len(partitions)):
            self.replicas[name, index] = Replicas()

    def move(self, key: Key, target: tuple[int, ...] | None) -> bool:
        """Start a move to `target`, or cancel the present one if None; return whether that was possible."""
        partition = self.partition(key)
        present = Assignment(partition.replicas, partition.adding, partition.removing)
        if target is None and not present.is_reassigning:
            return False
        wanted = present.with_target(present.original if target is None else target)
        try:
            document = state_after(partition, wanted, self.brokers, self.epoch)
        except InvalidReplicaAssignment:
            return False
        if document is not None:
            self.write(key, document, partition.version)
        moving = replace(self.partition(key), replicas=wanted.replicas, adding=wanted.adding, removing=wanted.removing)
        self._put(key[0], moving, moved=True)
        self._drop_logs(key)
        return True

    def _drop_logs(self, key: Key) -> None:
        logs = self.replicas[key].logs
        for id in [id for id in logs if id not in self.partition(key).replicas]:
            del logs[id]

    # --- leaders and followers ------------------------------------------------------------------------------------

    def append(self, key: Key) -> None:
        if self.leads(key):
            self.replicas[key].logs.setdefault(self.partition(key).leader, []).append(next(self._records))
            self._commit(key)

    def fetch(self, key: Key, follower: int) -> None:
        """Copy the leader's log to the follower, truncating where the two diverge."""
        partition, replicas = self.partition(key), self.replicas[key]
        if follower not in self.brokers or follower not in partition.replicas or not self.leads(key):
            return
        if follower == partition.leader:
            return
        replicas.logs[follower] = list(replicas.logs.get(partition.leader, []))
        end = len(replicas.logs[follower])
        replicas.fetched[follower] = (self.brokers[follower].epoch, partition.leader_epoch, end)
        self._commit(key)

    def shrink(self, key: Key, member: int) -> None:
        partition = self.partition(key)
        if self.leads(key) and member in partition.isr and member != partition.leader:
            self._write_isr(key, tuple(id for id in partition.isr if id != member), {})
            self._commit(key)

    def expand(self, key: Key, follower: int) -> None:
        """Expand the ISR by what the leader knows of the follower, which may have died since."""
        partition, replicas = self.partition(key), self.replicas[key]
        if not self.leads(key) or follower in partition.isr or follower not in partition.replicas:
            return
        known = replicas.fetched.get(follower)
        end = len(replicas.logs.get(partition.leader, []))
        if known is None or known[1:] != (partition.leader_epoch, end):
            return
        if follower in self.brokers and self.brokers[follower].stopping:
            return
        self._write_isr(key, (*partition.isr, follower), {follower: known[0]})

    def _write_isr(self, key: Key, isr: tuple[int, ...], joined: dict[int, int]) -> None:
        partition = self.partition(key)
        epochs = incarnations.isr_epochs(isr, partition, self.brokers, joined)
        self.write(
            key,
            PartitionStateDocument(
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                controller_epoch=partition.controller_epoch,
                isr=isr,
                isr_broker_epochs=epochs,
            ),
            partition.version,
        )

    def _commit(self, key: Key) -> None:
        replicas = self.replicas[key]
        logs = [replicas.logs.get(id, []) for id in self.partition(key).isr]
        end = min(len(log) for log in logs)
        while any(log[:end] != logs[0][:end] for log in logs):
            end -= 1
        if end > len(replicas.committed):
            replicas.committed = logs[0][:end]

    # --- controllers ----------------------------------------------------------------------------------------------

    def elect(self, id: int) -> None:
        self.epoch += 1
        controller = self.controllers.setdefault(id, Controller(ControllerState(broker_id=id, image=self.image())))
        self.show(id)
        controller.orders.clear()
        self._feed(controller, Elected(ControllerEpoch(id, self.epoch, self.epoch)))

    def show(self, id: int) -> None:
        """Show a controller the present image; topics to reconcile again come as new objects."""
        controller = self.controllers[id]
        known = controller.state.image.topics
        for name in controller.again & self.topics.keys():
            if known.get(name) is self.topics[name]:
                self.topics[name] = replace(self.topics[name])
        controller.again.clear()
        self._feed(controller, ImageChanged(self.image()))

    def balance(self, id: int) -> None:
        self._feed(self.controllers[id], BalanceDue())

    def carry(self, id: int) -> None:
        """Carry out a controller's next order; the controller steps down if a guard fails."""
        controller = self.controllers[id]
        if not controller.orders:
            return
        order = controller.orders.popleft()
        if isinstance(order, ReconcileAgain):
            controller.again.update(order.topics)
            return
        if controller.state.held_epoch is None or controller.state.held_epoch.epoch != self.epoch:
            controller.orders.clear()
            self._feed(controller, Deposed("the guard failed"))
            return
        match order:
            case WriteStates(writes):
                self._feed(controller, self._write_all(writes))
            case FinishReassignments(topic, writes):
                self._feed(controller, self._finish(topic, writes))
            case FinishDeletion(topic):
                self.topics.pop(topic.name, None)
                self._feed(controller, TopicApplied(topic.name))
            case CreateSystemTopic(name, assignment, _):
                self.create(name, *(assignment[index] for index in sorted(assignment)))
                self._feed(controller, TopicApplied(name))
            case GrowSystemTopic(name, present, added):
                self._grow(name, present, added)
                self._feed(controller, TopicApplied(name))

    def _write_all(self, writes: Iterable[StateWrite]) -> StatesWritten:
        written: dict[Key, int] = {}
        lost: list[Key] = []
        for write in writes:
            try:
                self.write(write.key, write.document, write.version)
            except Overtaken:
                lost.append(write.key)
            else:
                written[write.key] = 0 if write.version is None else write.version + 1
        return StatesWritten(written, tuple(lost))

    def _finish(self, topic: TopicImage, writes: tuple[StateWrite, ...]) -> StatesWritten:
        overtaken = self.topics[topic.name].version != topic.version or any(
            self.partition(write.key).version != write.version for write in writes
        )
        if overtaken:
            return StatesWritten({}, tuple(write.key for write in writes))
        for write in writes:
            assert set(self.partition(write.key).target) <= set(self.partition(write.key).isr), "ended on the way"
        result = self._write_all(writes)
        for write in writes:
            partition = self.partition(write.key)
            self._put(topic.name, replace(partition, replicas=partition.target, adding=(), removing=()), moved=True)
            self._drop_logs(write.key)
        return result

    def _grow(self, name: str, present: int, added: tuple[tuple[int, ...], ...]) -> None:
        topic = self.topics[name]
        if len(topic.partitions) != present:
            return
        more = tuple(PartitionImage(present + offset, replicas) for offset, replicas in enumerate(added))
        self.topics[name] = replace(topic, partitions=topic.partitions + more, version=topic.version + 1)
        for partition in more:
            self.replicas[name, partition.index] = Replicas()

    def _feed(self, controller: Controller, event: Event) -> None:
        controller.state, orders = decide(controller.state, event)
        controller.state.check()
        controller.orders.extend(orders)

    def complete(self) -> None:
        """Carry out all orders of the present controller, elected if there is none; followers do not fetch."""
        if not self.brokers:
            return
        is_controller = [
            id
            for id, controller in self.controllers.items()
            if controller.state.held_epoch and controller.state.held_epoch.epoch == self.epoch
        ]
        id = is_controller[0] if is_controller else min(self.brokers)
        if not is_controller:
            self.elect(id)
        for _ in range(100):
            if not self.controllers[id].orders and not self.controllers[id].again:
                self.show(id)
                if not self.controllers[id].orders:
                    return
            while self.controllers[id].orders:
                self.carry(id)
            self.show(id)
        raise AssertionError("the controller never comes to rest")
