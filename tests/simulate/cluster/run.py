"""One run: a cluster, its clients, and a seed that says what happens next. `history` tells it in words."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any, Final

import structlog

from brokers.contract import paths
from brokers.contract.documents import BrokerDocument, PartitionStateDocument
from tests.simulate.cluster import faults
from tests.simulate.cluster.broker import Host, Surroundings
from tests.simulate.cluster.checkers import Checkers
from tests.simulate.cluster.clients import Consumer, Producer
from tests.simulate.cluster.clock import US_PER_MS, World
from tests.simulate.cluster.disks import Disks
from tests.simulate.cluster.network import Network
from tests.simulate.cluster.order import InOrder
from tests.simulate.cluster.promises import BrokenPromise, Promises
from tests.simulate.cluster.records import TOPIC
from tests.simulate.cluster.zookeeper import Ensemble

PARTITIONS: Final = 2
BROKERS: Final = (3, 3, 3, 4)
MIN_INSYNC: Final = (2, 2, 2, 1)
# Of each partition: how many producers with (acks, whether idempotent).
PRODUCERS: Final = ((-1, True), (-1, True), (-1, False), (1, False), (0, False))
BOOT_MS_MAX: Final = 20_000
# After everything is healed.
SETTLE_MS_MAX: Final = 60_000
SETTLE_STEP_MS: Final = 250
# How long a step takes, and how often it is a client's.
STEP_MS: Final = (0, 1, 2, 3, 5, 5, 8, 8, 10, 20, 30, 60)
CLIENTS_SHARE: Final = 0.85
# The rare step that lets time-outs run out.
LONG_CHANCE: Final = 0.03
LONG_MS: Final = (150, 400, 800)


class ClusterRun:
    """`step` raises BrokenPromise; `close` gives back what a run takes from the process, whatever happened."""

    def __init__(self, seed: int, home: Path) -> None:
        self.dice = dice = random.Random(seed)
        self.history: list[str] = []
        self.steps = 0
        self.world = World()
        self.network = Network(self.world, dice)
        self.ensemble = Ensemble(self.world, self.network, dice)
        self._disks = Disks()
        self._logging = structlog.get_config()
        self._around = Surroundings(self.world, self.network, self.ensemble, self._disks, dice)
        self.promises = Promises(PARTITIONS)
        self.checkers = Checkers(self.promises, self.ensemble, self._disks, PARTITIONS)
        self.faults = faults.Faults(self)
        self._open()
        try:
            count = dice.choice(BROKERS)
            self.hosts = self._around.hosts
            for id in range(1, count + 1):
                self.hosts[id] = Host(id, home / f"b{id}", self._around, self.tell)
            self._boot()
        except BaseException:
            self.close()
            raise
        self.producers = [
            Producer(PARTITIONS * number + index, index, acks, idempotent, self._around, self.promises, self.tell)
            for number, (acks, idempotent) in enumerate(PRODUCERS)
            for index in range(PARTITIONS)
        ]
        self.consumers = [Consumer(index, self._around, self.promises, self.tell) for index in range(PARTITIONS)]
        self._verbs, self._weights = list(faults.WEIGHTS), list(faults.WEIGHTS.values())

    # -- what a run takes from the process -----------------------------------------------------------------------------

    def _open(self) -> None:
        self._collects = gc.isenabled()
        # What a dead process leaves behind must go when it dies, and not at some other moment of another run.
        gc.disable()
        structlog.configure(
            processors=[self._hear], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False
        )
        self._disks.__enter__()

        self._order = InOrder()

    def close(self) -> None:
        self._order.close()
        for host in getattr(self, "hosts", {}).values():
            host.end("the run is over")
        self._disks.__exit__()
        structlog.configure(**self._logging)
        if self._collects:
            gc.enable()

    def tell(self, text: str) -> None:
        self.history.append(f"{self.world.now_us / 1_000_000:9.4f} {text}")

    def _hear(self, _logger: Any, level: str, event: dict[str, Any]) -> Any:
        """What the engine logs is part of the history."""
        if level != "debug":
            who = f"b{self._around.speaking[-1]} " if self._around.speaking else ""
            name = event.pop("event", "")
            self.tell(f"  {who}{name} {' '.join(f'{key}={value}' for key, value in event.items())}")
            if name == "committed_records_truncated":
                raise BrokenPromise(f"{who}truncates committed records: {event}")
        raise structlog.DropEvent

    # -- the beginning -------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        for host in self.hosts.values():
            host.start()
        self._until(self.all_registered, BOOT_MS_MAX, "the brokers come up")
        creator = next(iter(self.hosts.values())).process
        assert creator is not None
        ids = list(self.hosts)
        assignment = {index: tuple(self.dice.sample(ids, 3)) for index in range(PARTITIONS)}
        config = {"min.insync.replicas": str(self.dice.choice(MIN_INSYNC)), "segment.bytes": "1500"}
        self.tell(f"{TOPIC} is {assignment} with {config}")
        work = creator.store.create_topic(
            creator.current.image, instance_id=None, name=TOPIC, assignment=assignment, config=config
        )
        creator.loop.call_soon(creator.loop.create_task, work)
        self._until(lambda: len(self.states()) == PARTITIONS, BOOT_MS_MAX, "the topic is led")

    def _until(self, holds: Any, ms_max: int, what: str) -> None:
        for _ in range(0, ms_max, 20):
            if holds():
                return
            self.world.run_for(20 * US_PER_MS)
            self.checkers.look(self.hosts)
        raise BrokenPromise(f"not within {ms_max} ms: {what}")

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        dice = self.dice
        self.steps += 1
        if dice.random() < CLIENTS_SHARE:
            if dice.random() < 0.85:
                dice.choice(self.producers).produce(dice)
            else:
                dice.choice(self.consumers).consume()
        else:
            verb = dice.choices(self._verbs, self._weights)[0]
            at = len(self.history)
            done = self.faults.do(verb)
            if done:
                self.history.insert(at, f"{self.world.now_us / 1_000_000:9.4f} ** {verb.replace('_', ' ')}: {done}")
        ms = dice.choice(LONG_MS) if dice.random() < LONG_CHANCE else dice.choice(STEP_MS)
        self.world.run_for(ms * US_PER_MS + dice.randrange(US_PER_MS))
        self.checkers.look(self.hosts)

    def check(self) -> None:
        """Nothing that the steps do not check."""

    def finish(self) -> None:
        """Everything is mended and everybody comes back: then all is in order again, in bounded time."""
        self.tell("** everything is mended")
        self.faults.heal()
        for _ in range(0, SETTLE_MS_MAX, SETTLE_STEP_MS):
            for host in self.hosts.values():
                host.start()
            self.world.run_for(SETTLE_STEP_MS * US_PER_MS)
            self.checkers.look(self.hosts)
            if not self._unsettled():
                break
        else:
            raise BrokenPromise(f"not in order {SETTLE_MS_MAX} ms after everything was mended: {self._unsettled()}")
        self.checkers.equal_logs(self.hosts)

    def _unsettled(self) -> str:
        if not self.all_registered():
            return "not everybody is registered"
        for producer in self.producers:
            if producer.is_busy:
                return f"{producer.name} is not answered"
        for index, state in self.states().items():
            ends = []
            replicas = set(state.isr)
            for host in self.hosts.values():
                assert host.process is not None
                partition = host.process.table.get(TOPIC, index)
                if partition is not None:
                    replicas |= set(partition.replicas)
                    if host.id in state.isr:
                        ends.append((partition.log_end_offset, partition.high_watermark))
            if state.leader < 0 or replicas != set(state.isr):
                return f"{index} has {state.isr} in sync of {sorted(replicas)}, led by {state.leader}"
            if len({offset for pair in ends for offset in pair}) != 1 or len(ends) != len(state.isr):
                return f"{index} ends at {ends} on {state.isr}"
        return ""

    # -- how it stands, by ZooKeeper -----------------------------------------------------------------------------------

    def states(self) -> dict[int, PartitionStateDocument]:
        found = {}
        for index in range(PARTITIONS):
            node = self.ensemble.tree.read(paths.partition_state(TOPIC, index))
            if node is not None:
                found[index] = PartitionStateDocument.from_json(node.data)
        return found

    def all_registered(self) -> bool:
        for host in self.hosts.values():
            process = host.process
            if process is None or not process.is_listening or process.loop.is_paused:
                return False
            node = self.ensemble.tree.read(paths.broker(host.id))
            if node is None or node.czxid != process.session.broker_epoch:
                return False
            if BrokerDocument.from_json(node.data).stopping:
                return False
        return True

    def is_same_life(self, state: PartitionStateDocument) -> bool:
        """Whether everybody in sync lives as when that was written."""
        if len(state.isr) != len(state.isr_broker_epochs):
            return False
        for id, epoch in zip(state.isr, state.isr_broker_epochs, strict=True):
            process = self.hosts[id].process
            if process is None or process.session.broker_epoch != epoch:
                return False
        return True
