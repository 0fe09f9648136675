"""Base of all runs of a cluster: a world, brokers, faults, and a history in words."""

from __future__ import annotations

import gc
import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.engine.cluster.topic_plans import TopicSpec
from brokers.engine.coordinators.settings import CoordinatorSettings
from tests.simulation.cluster.broker import Host, Process, SimulationContext
from tests.simulation.cluster.clock import US_PER_MS, World
from tests.simulation.cluster.disks import Disks
from tests.simulation.cluster.documents import registration_of, state_of
from tests.simulation.cluster.network import Network
from tests.simulation.cluster.order import InOrder
from tests.simulation.cluster.promises import BrokenPromise
from tests.simulation.cluster.zookeeper import Ensemble

BOOT_MS_MAX: Final = 20_000
# Time to recover after all faults have ended.
SETTLE_MS_MAX: Final = 60_000
SETTLE_STEP_MS: Final = 250
# Durations of a step.
STEP_MS: Final = (0, 1, 2, 3, 5, 5, 8, 8, 10, 20, 30, 60)
# Probability of a long step, in which time-outs expire.
LONG_CHANCE: Final = 0.03
LONG_MS: Final = (150, 400, 800)

# `log.segment.bytes.min` of the brokers.
SMALL_SEGMENT_BYTES_MIN: Final = 1
SEGMENT_BYTES_MIN: Final = 16 * 1024


class Stage(ABC):
    """Base of a run. All methods that let time pass raise BrokenPromise.

    `close` restores what a run changes in the Python process, and must be called in any case.
    """

    def __init__(self, seed: int, coordination: CoordinatorSettings | None = None) -> None:
        self.dice = dice = random.Random(seed)
        self.history: list[str] = []
        self.steps = 0
        self.world = World()
        self.network = Network(self.world, dice)
        self.ensemble = Ensemble(self.world, self.network, dice)
        self.disks = Disks(self.world)
        self._logging = structlog.get_config()
        self.context = SimulationContext(self.world, self.network, self.ensemble, self.disks, dice, coordination)
        self.context.segment_bytes_min = SMALL_SEGMENT_BYTES_MIN if self.segments_are_small else SEGMENT_BYTES_MIN
        self.hosts = self.context.hosts

    @abstractmethod
    def check_invariants(self) -> None:
        """Checks the invariants. Raises BrokenPromise."""

    @abstractmethod
    def some_topic(self) -> str:
        """Returns a topic for an operator's action."""

    @abstractmethod
    def states(self) -> Mapping[Any, PartitionStateDocument]:
        """Returns the states in ZooKeeper of all partitions that must not lose records."""

    # Compacted topics, of which the leader's cleaner may remove whole epochs. A follower that still has them truncates
    # to an epoch that the leader knows (KIP-279), and loses no latest record of a key.
    compacted: Collection[str] = ()

    # False if a machine may have the only copy of some records.
    power_may_be_cut = True

    # True to have several segments in a log, although a run writes only some kilobytes.
    segments_are_small = False

    # -- state of the Python process -----------------------------------------------------------------------------------

    def open(self) -> None:
        self._collects = gc.isenabled()
        # Objects of a dead process must be freed when it dies, and not at a random time in another run.
        gc.disable()
        structlog.configure(
            processors=[self._note_event], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False
        )
        # Coroutines of a killed process are never awaited.
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        self.disks.__enter__()
        self._order = InOrder()

    def close(self) -> None:
        self._order.close()
        for host in self.hosts.values():
            host.end("the run is over")
        self.disks.__exit__()
        self._warnings.__exit__(None, None, None)
        structlog.configure(**self._logging)
        if self._collects:
            gc.enable()

    def note(self, text: str) -> None:
        self.history.append(f"{self.world.now_us / 1_000_000:9.4f} {text}")

    def _note_event(self, _logger: Any, level: str, event: dict[str, Any]) -> Any:
        """Adds log events of the engine to the history."""
        if level != "debug":
            turn = self.world.turn
            process_name = "" if turn is None else f"{turn.name} "
            name = event.pop("event", "")
            self.note(f"  {process_name}{name} {' '.join(f'{key}={value}' for key, value in event.items())}")
            if name == "committed_records_truncated" and event["topic"] not in self.compacted:
                raise BrokenPromise(f"{process_name}truncates committed records: {event}")
        raise structlog.DropEvent

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start_brokers(self, count: int, home: Path) -> None:
        """Starts `count` brokers and waits until all are registered."""
        for id in range(1, count + 1):
            self.hosts[id] = Host(id, home / f"b{id}", self.context, self.note)
        for host in self.hosts.values():
            host.start()
        self.until(self.all_registered, BOOT_MS_MAX, "the brokers come up")

    def first_process(self) -> Process:
        process = next(iter(self.hosts.values())).process
        assert process is not None
        return process

    def create(self, name: str, assignment: dict[int, tuple[int, ...]], config: dict[str, str]) -> None:
        """Requests the creation of a topic, which exists later."""
        creator = self.first_process()
        self.note(f"{name} is {assignment} with {config}")
        work = creator.store.create_topic(
            creator.current.image, TopicSpec(None, name, assignment=assignment, config=config)
        )
        creator.loop.call_soon(creator.loop.create_task, work)

    def until(self, is_met: Callable[[], bool], ms_max: int, condition: str) -> None:
        for _ in range(0, ms_max, 20):
            if is_met():
                return
            self.world.run_for(20 * US_PER_MS)
            self.check_invariants()
        raise BrokenPromise(f"within {ms_max} ms this did not happen: {condition}")

    # -- steps ---------------------------------------------------------------------------------------------------------

    def cause_fault(self, do: Callable[[str], str], verb: str) -> None:
        """Performs a verb; the history has its description before its consequences."""
        position = len(self.history)
        description = do(verb)
        if description:
            self.history.insert(
                position, f"{self.world.now_us / 1_000_000:9.4f} ** {verb.replace('_', ' ')}: {description}"
            )

    def pass_time(self) -> None:
        """Lets the time of one step pass."""
        dice = self.dice
        ms = dice.choice(LONG_MS) if dice.random() < LONG_CHANCE else dice.choice(STEP_MS)
        self.world.run_for(ms * US_PER_MS + dice.randrange(US_PER_MS))
        self.check_invariants()

    def complete(self, pending: Callable[[], str], ms_max: int = SETTLE_MS_MAX) -> None:
        """Starts all brokers and lets time pass until `pending` returns ""."""
        for _ in range(0, ms_max, SETTLE_STEP_MS):
            for host in self.hosts.values():
                host.start()
            self.world.run_for(SETTLE_STEP_MS * US_PER_MS)
            self.check_invariants()
            if not pending():
                return
        raise BrokenPromise(f"{ms_max} ms after the end of all faults, work is still pending: {pending()}")

    # -- state by ZooKeeper --------------------------------------------------------------------------------------------

    def states_of(self, topic: str, partitions: int) -> dict[int, PartitionStateDocument]:
        result = {}
        for index in range(partitions):
            node = self.ensemble.tree.read(paths.partition_state(topic, index))
            if node is not None:
                result[index] = state_of(node.data)
        return result

    def incomplete_partition(self, topic: str, index: int, state: PartitionStateDocument) -> str:
        """Returns why a partition is not led, fully replicated and committed to its end; "" if it is."""
        ends = []
        replicas = set(state.isr)
        for host in self.hosts.values():
            assert host.process is not None
            partition = host.process.table.get(topic, index)
            if partition is not None:
                replicas |= set(partition.replicas)
                if host.id in state.isr:
                    ends.append((partition.log_end_offset, partition.high_watermark))
        if state.leader < 0 or replicas != set(state.isr):
            return f"{index} has {state.isr} in sync of {sorted(replicas)}, led by {state.leader}"
        if len({offset for pair in ends for offset in pair}) != 1 or len(ends) != len(state.isr):
            return f"{index} ends at {ends} on {state.isr}"
        return ""

    def all_registered(self) -> bool:
        for host in self.hosts.values():
            process = host.process
            if process is None or not process.is_listening or process.loop.is_paused:
                return False
            node = self.ensemble.tree.read(paths.broker(host.id))
            if node is None or node.czxid != process.session.broker_epoch:
                return False
            if registration_of(node.data).stopping:
                return False
        return True

    def is_same_incarnation(self, state: PartitionStateDocument) -> bool:
        """True if all in-sync replicas run in the incarnations that the state names."""
        if len(state.isr) != len(state.isr_broker_epochs):
            return False
        for id, epoch in zip(state.isr, state.isr_broker_epochs, strict=True):
            process = self.hosts[id].process
            if process is None or process.session.broker_epoch != epoch:
                return False
        return True
