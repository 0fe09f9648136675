"""Topics of a tenant that are created, grown, deleted and created again under the same name during faults.

ZooKeeper shows which of them exist, because the results of requests may be lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from brokers.contract import paths
from brokers.contract.documents import InstanceDocument, PartitionStateDocument, change_to_json
from brokers.engine.cluster.errors import ClusterError, Refused, StoreUnavailable
from brokers.engine.cluster.topic_plans import TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import Create
from instances.naming import internal_topic
from tests.simulation.cluster.broker import Process, SimulationContext
from tests.simulation.cluster.documents import state_of, topic_of
from tests.simulation.cluster.promises import BrokenPromise
from tests.simulation.cluster.topic_incarnations import PARTITIONS_MAX, Strays, TopicIncarnation

INSTANCE: Final = "ins-7k2m9qxa"
# The second topic has a hashed internal name, and a document with its name.
NAMES: Final = ("parcels", "h.letters")
PARTITIONS: Final = (1, 2, 3)
REPLICAS: Final = (1, 2, 3)
# With one replica, records may be lost in a power cut, which is not a fault.
REPLICAS_OF_WHICH_ONE_MAY_GO: Final = (2, 3)
MIN_INSYNC: Final = (1, 1, 2)
# Share of the steps that concern these topics, and share of an operator's steps among these.
SHARE: Final = 0.25
VERBS_SHARE: Final = 0.15
WEIGHTS: Final = {"create": 6, "delete": 2, "recreate": 5, "grow": 2}
PRODUCERS_SHARE: Final = 0.8
DELETERS_SHARE: Final = 0.05
# Number and interval of retries after a refusal because a broker still knows the topic.
ATTEMPTS_MAX: Final = 40
ATTEMPT_S: Final = 0.02
DELETED_MS: Final = ("1", "1000", "60000")


class TopicChurn:
    """Topics that are created and deleted. `states` are those of existing partitions; `checkers` check their replicas.

    It has its own random numbers, so that runs without such topics take the same steps as before.
    """

    def __init__(self, dice: random.Random, context: SimulationContext, note: Callable[[str], object]) -> None:
        self.dice = dice
        self.may_be_alone = self.dice.random() < 0.5
        self.incarnations: dict[str, TopicIncarnation] = {}
        self._context = context
        self._note = note
        self._strays: dict[str, Strays] = {}
        self._count = 0
        self._is_over = False
        self._names = {internal_topic(INSTANCE, name): name for name in NAMES}
        self._bodies = {paths.topic(name): name for name in self._names}
        self._markers = {paths.topic_deletion(name): name for name in self._names}
        self._broken: BrokenPromise | None = None

    def open(self, hosts: list[int]) -> None:
        """Creates the tenant's instance."""
        ports = {id: 9_000 + id for id in hosts}
        document = InstanceDocument(
            generation=1, produce_bps=1 << 40, consume_bps=1 << 40, capacity_bytes=1 << 40, ports=ports
        )
        change = Create(paths.CHANGE_PREFIX, change_to_json([f"instances/{INSTANCE}"]), sequence=True)
        self._context.ensemble.write([Create(paths.instance(INSTANCE), document.to_json()), change])

    # -- what lives ----------------------------------------------------------------------------------------------------

    def on_write(self, path: str, data: bytes | None, session: int) -> None:
        name = self._bodies.get(path)
        if name is not None:
            self._topic_written(name, data)
        elif path in self._markers and data is not None:
            self._end(self._markers[path])
        for incarnation in self.incarnations.values():
            incarnation.checkers.on_write(path, data, session)

    def _topic_written(self, name: str, data: bytes | None) -> None:
        incarnation = self.incarnations.get(name)
        if data is None:
            if incarnation is not None:
                self._broken = self._broken or BrokenPromise(f"{name} was removed without a mark for deletion")
                self._end(name)
            return
        if incarnation is not None:
            incarnation.grow(topic_of(data))
        elif self._context.ensemble.tree.read(paths.topic_deletion(name)) is None:
            self._count += 1
            strays = self._strays.get(name, Strays())
            incarnation = self.incarnations[name] = TopicIncarnation(
                self._count, name, topic_of(data), self._context, strays, self._note
            )
            self._note(f"{name} lives, #{self._count}: {dict(topic_of(data).assignment)}")

    def _end(self, name: str) -> None:
        incarnation = self.incarnations.pop(name, None)
        if incarnation is not None:
            self._note(f"{name} #{incarnation.number} is marked for deletion")
            self._strays[name] = incarnation.end()

    def check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def states(self) -> dict[tuple[str, int], PartitionStateDocument]:
        read = self._context.ensemble.tree.read
        result = {}
        for name, incarnation in self.incarnations.items():
            for index in range(incarnation.checkers.partitions):
                node = read(paths.partition_state(name, index))
                if node is not None:
                    result[name, index] = state_of(node.data)
        return result

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        dice = self.dice
        incarnations = list(self.incarnations.values())
        if not incarnations or dice.random() < VERBS_SHARE:
            verb = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            getattr(self, f"_{verb}")(dice.choice(NAMES))
            return
        incarnation, die = dice.choice(incarnations), dice.random()
        if die < PRODUCERS_SHARE:
            dice.choice(incarnation.producers).produce(dice)
        elif die >= 1 - DELETERS_SHARE:
            dice.choice(incarnation.deleters).delete(dice)
        else:
            dice.choice(incarnation.consumers).consume()

    def _process(self) -> Process | None:
        """Returns the process of a broker that serves an operator, None without one."""
        hosts = self._context.hosts.values()
        ready = [host.process for host in hosts if host.process and host.is_running and host.process.is_listening]
        return self.dice.choice(ready) if ready else None

    def _request(self, description: str, work: Callable[[Process], Coroutine[Any, Any, object]]) -> None:
        process = self._process()
        if process is None:
            return
        self._note(f"** {description} through b{process.id}")
        process.loop.call_soon(lambda: process.loop.create_task(self._carry_out(process, work(process))))

    async def _carry_out(self, process: Process, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except ClusterError as error:
            self._note(f"  b{process.id} says {error}")

    def _create(self, name: str) -> None:
        shape = self._shape()
        self._request(f"create {name} {shape}", lambda process: self._create_topic(process, name, shape))

    def _delete(self, name: str) -> None:
        self._request(f"delete {name}", lambda process: self._delete_topic(process, name))

    def _recreate(self, name: str) -> None:
        shape = self._shape()

        async def work(process: Process) -> None:
            try:
                await self._delete_topic(process, name)
            except Refused as error:
                self._note(f"  b{process.id} says {error}")
            await self._create_topic(process, name, shape, ATTEMPTS_MAX)

        self._request(f"recreate {name} {shape}", work)

    def _grow(self, name: str) -> None:
        incarnation = self.incarnations.get(internal_topic(INSTANCE, name))
        total = self.dice.randint(2, PARTITIONS_MAX)
        if incarnation is None or total <= incarnation.checkers.partitions:
            return

        async def work(process: Process) -> None:
            await process.store.create_partitions(process.current.image, TopicGrowth(INSTANCE, name, total=total))

        self._request(f"grow {name} to {total} partitions", work)

    def _shape(self) -> dict[str, Any]:
        dice = self.dice
        config = {
            "segment.bytes": "1500",
            "min.insync.replicas": str(dice.choice(MIN_INSYNC)),
            "file.delete.delay.ms": dice.choice(DELETED_MS),
        }
        replicas = dice.choice(REPLICAS if self.may_be_alone else REPLICAS_OF_WHICH_ONE_MAY_GO)
        return {"partitions": dice.choice(PARTITIONS), "replication_factor": replicas, "config": config}

    async def _create_topic(self, process: Process, name: str, shape: dict[str, Any], attempts: int = 1) -> None:
        for attempts_left in reversed(range(attempts)):
            try:
                await process.store.create_topic(process.current.image, TopicSpec(INSTANCE, name, **shape))
            except (Refused, StoreUnavailable):
                if not attempts_left or self._is_over:
                    raise
                await asyncio.sleep(ATTEMPT_S)
            else:
                return

    @staticmethod
    async def _delete_topic(process: Process, name: str) -> None:
        await process.store.delete_topic(process.current.image, instance_id=INSTANCE, name=name)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Begins no further actions."""
        self._is_over = True

    def pending(self) -> str:
        """Returns what is left of deleted topics or missing of existing ones, "" if nothing is."""
        for incarnation in self.incarnations.values():
            for client in (*incarnation.producers, *incarnation.deleters):
                if client.is_busy:
                    return f"{client.name} is not answered"
        return next(self._left_in_zookeeper(), "") or next(self._left_on_brokers(), "")

    def _left_in_zookeeper(self) -> Iterator[str]:
        tree = self._context.ensemble.tree
        for name in self._names:
            if name not in self.incarnations:
                yield from (f"{path} is left" for path in tree.nodes if name in path.split("/"))
                continue
            node = tree.read(paths.topic(name))
            assert node is not None
            document = topic_of(node.data)
            if document.adding or document.removing:
                yield f"{name} moves: {document}"
            for index, replicas in document.assignment.items():
                state = tree.read(paths.partition_state(name, index))
                if state is None:
                    yield f"{name}-{index} has no state"
                elif set(state_of(state.data).isr) != set(replicas):
                    yield f"{name}-{index} has {state_of(state.data).isr} in sync of {replicas}"

    def _left_on_brokers(self) -> Iterator[str]:
        for host in self._context.hosts.values():
            assert host.process is not None
            held_names = set()
            for partition in host.process.table:
                held_names.add(f"{partition.topic}-{partition.index}")
                if partition.topic in self._names and not self._belongs(host.id, partition.topic, partition.index):
                    yield f"b{host.id} holds {partition.topic}-{partition.index}, which is gone or elsewhere"
                incarnation = self.incarnations.get(partition.topic)
                if incarnation is not None and partition.topic_id != incarnation.topic.id:
                    yield f"b{host.id} holds {partition.topic}-{partition.index} of another life"
            for directory in sorted((host.disk.top / "data").iterdir()):
                is_log = directory.is_dir() and directory.name.rpartition("-")[2].isdigit()
                if is_log and directory.name not in held_names:
                    yield f"b{host.id} has a directory {directory.name} of nothing that it holds"

    def _belongs(self, id: int, name: str, index: int) -> bool:
        if name not in self.incarnations:
            return False
        node = self._context.ensemble.tree.read(paths.topic(name))
        return node is not None and id in topic_of(node.data).assignment.get(index, ())
