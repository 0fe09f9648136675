"""A run of the cluster simulation: brokers, clients and faults chosen by a seed. `history` describes it in words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from brokers.contract.documents import PartitionStateDocument
from tests.simulation.cluster import faults
from tests.simulation.cluster.checkers import Checkers
from tests.simulation.cluster.clients import Consumer, Producer
from tests.simulation.cluster.clock import US_PER_MS
from tests.simulation.cluster.deleters import Deleter
from tests.simulation.cluster.promises import BrokenPromise, Promises
from tests.simulation.cluster.records import TOPIC
from tests.simulation.cluster.stage import BOOT_MS_MAX, Stage
from tests.simulation.cluster.topic_churn import SHARE, TopicChurn

PARTITIONS: Final = 2
BROKERS: Final = (3, 3, 3, 4)
MIN_INSYNC: Final = (2, 2, 2, 1)
# Producers of each partition as (acks, is idempotent).
PRODUCERS: Final = ((-1, True), (-1, True), (-1, False), (1, False), (0, False))
# Share of steps that are a client's.
CLIENTS_SHARE: Final = 0.85
PRODUCERS_SHARE: Final = 0.85
# Share of deleters among clients' steps. Most runs have none, because deleted records are not compared any more.
DELETERS_SHARES: Final = (0.0, 0.0, 0.02)
# Retained bytes of each log, -1 for all: five segments, or so few that nothing is left of the log of a broker that was
# down.
RETENTION_BYTES: Final = (-1, -1, -1, -1, 7_500, 2_000)
# Share of runs in which a tenant's topics are created and deleted.
CHURN_SHARE: Final = 1 / 3
# Span in which an idle cluster may make at most these numbers of writes to ZooKeeper and operations on a disk. These
# include one flush of everything with its checkpoints.
QUIET_MS: Final = 4_000
QUIET_TRANSACTIONS_MAX: Final = 4
QUIET_OPERATIONS_MAX: Final = 120
QUIET_SPANS_MAX: Final = 3


class ClusterRun(Stage):
    """A run of a cluster; `step` raises BrokenPromise."""

    segments_are_small = True

    def __init__(self, seed: int, home: Path) -> None:
        super().__init__(seed)
        self.promises = Promises(PARTITIONS)
        self.checkers = Checkers(self.promises, self.ensemble, self.disks, PARTITIONS)
        dice = random.Random(f"topics of {seed}")
        self.churn = TopicChurn(dice, self.context, self.note) if dice.random() < CHURN_SHARE else None
        self.power_may_be_cut = self.churn is None or not self.churn.may_be_alone
        self.ensemble.tree.on_write = self._on_write
        self.faults = faults.Faults(self)
        self.open()
        try:
            count = self.dice.choice(BROKERS)
            self.start_brokers(count, home)
            self._boot()
        except BaseException:
            self.close()
            raise
        self.producers = [
            Producer(PARTITIONS * number + index, index, acks, idempotent, self.context, self.promises, self.note)
            for number, (acks, idempotent) in enumerate(PRODUCERS)
            for index in range(PARTITIONS)
        ]
        self.consumers = [Consumer(index, self.context, self.promises, self.note) for index in range(PARTITIONS)]
        self.deleters = [Deleter(index, self.context, self.promises, self.note) for index in range(PARTITIONS)]
        self._deleters_share = self.dice.choice(DELETERS_SHARES)
        self._verbs, self._weights = list(faults.WEIGHTS), list(faults.WEIGHTS.values())

    def _boot(self) -> None:
        dice, ids = self.dice, list(self.hosts)
        assignment = {index: tuple(dice.sample(ids, 3)) for index in range(PARTITIONS)}
        retention_bytes = dice.choice(RETENTION_BYTES)
        self.promises.is_kept = retention_bytes < 0
        config = {"min.insync.replicas": str(dice.choice(MIN_INSYNC)), "segment.bytes": "1500"}
        self.create(TOPIC, assignment, config | {"retention.bytes": str(retention_bytes)})
        self.until(lambda: len(self._states()) == PARTITIONS, BOOT_MS_MAX, "the topic is led")
        if self.churn is not None:
            self.churn.open(ids)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        dice = self.dice
        self.steps += 1
        if self.churn is not None and self.churn.dice.random() < SHARE:
            self.churn.step()
        elif dice.random() < CLIENTS_SHARE:
            die = dice.random()
            if die < PRODUCERS_SHARE:
                dice.choice(self.producers).produce(dice)
            elif die >= 1 - self._deleters_share:
                dice.choice(self.deleters).delete(dice)
            else:
                dice.choice(self.consumers).consume()
        else:
            self.cause_fault(self.faults.do, dice.choices(self._verbs, self._weights)[0])
        self.pass_time()

    def check_invariants(self) -> None:
        if self.churn is None:
            self.checkers.check_invariants(self.hosts)
        else:
            self.churn.check()
            self.checkers.check_invariants(
                self.hosts, [incarnation.checkers for incarnation in self.churn.incarnations.values()]
            )

    def _on_write(self, path: str, data: bytes | None, session: int) -> None:
        self.checkers.on_write(path, data, session)
        if self.churn is not None:
            self.churn.on_write(path, data, session)

    def check(self) -> None:
        """Does nothing: the steps check everything."""

    def finish(self) -> None:
        """Ends all faults and starts all brokers; the cluster must recover in bounded time."""
        self.note("** all faults end")
        self.faults.heal()
        if self.churn is not None:
            self.churn.close()
        self.complete(self._pending)
        self.checkers.check_equal_logs(self.hosts)
        if self.churn is not None:
            for incarnation in self.churn.incarnations.values():
                incarnation.checkers.check_equal_logs(self.hosts)
            self._stay_quiet()

    def _stay_quiet(self) -> None:
        """Checks that an idle cluster stops writing.

        Remaining work, such as preferred leaders and due checkpoints, must be done within a few spans.
        """
        for _ in range(QUIET_SPANS_MAX):
            written = self._written_in_a_span()
            if not written:
                return
        raise BrokenPromise(f"an idle cluster wrote {written}")

    def _written_in_a_span(self) -> str:
        """Lets a span pass and returns what was written too much, "" if nothing was."""
        disks = {host.id: host.disk for host in self.hosts.values()}
        transactions, operations = self.ensemble.tree.zxid, {id: len(disk.ops) for id, disk in disks.items()}
        self.world.run_for(QUIET_MS * US_PER_MS)
        self.check_invariants()
        if pending := self._pending():
            raise BrokenPromise(f"an idle cluster has pending work: {pending}")
        transactions = self.ensemble.tree.zxid - transactions
        done = {id: len(disk.ops) - operations[id] for id, disk in disks.items()}
        is_much = transactions > QUIET_TRANSACTIONS_MAX or max(done.values()) > QUIET_OPERATIONS_MAX
        return f"{transactions} transactions and {done} operations on disks" if is_much else ""

    def _pending(self) -> str:
        if not self.all_registered():
            return "not everybody is registered"
        for client in (*self.producers, *self.deleters):
            if client.is_busy:
                return f"{client.name} is not answered"
        sent = (self.incomplete_partition(TOPIC, index, state) for index, state in self._states().items())
        if reason := next((reason for reason in sent if reason), ""):
            return reason
        return "" if self.churn is None else self._incomplete_incarnations(self.churn)

    def _incomplete_incarnations(self, churn: TopicChurn) -> str:
        sent = (self.incomplete_partition(name, index, state) for (name, index), state in churn.states().items())
        return churn.pending() or next((reason for reason in sent if reason), "")

    def some_topic(self) -> str:
        return TOPIC if self.churn is None else self.churn.dice.choice([TOPIC, *self.churn.incarnations])

    def states(self) -> dict[Any, PartitionStateDocument]:
        return self._states() if self.churn is None else {**self._states(), **self.churn.states()}

    def _states(self) -> dict[int, PartitionStateDocument]:
        return self.states_of(TOPIC, PARTITIONS)
