"""One run: a cluster, its clients, and a seed that says what happens next. `history` tells it in words."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from brokers.contract.documents import PartitionStateDocument
from tests.simulate.cluster import faults
from tests.simulate.cluster.checkers import Checkers
from tests.simulate.cluster.clients import Consumer, Producer
from tests.simulate.cluster.deleters import Deleter
from tests.simulate.cluster.promises import Promises
from tests.simulate.cluster.records import TOPIC
from tests.simulate.cluster.stage import BOOT_MS_MAX, Stage

PARTITIONS: Final = 2
BROKERS: Final = (3, 3, 3, 4)
MIN_INSYNC: Final = (2, 2, 2, 1)
# Of each partition: how many producers with (acks, whether idempotent).
PRODUCERS: Final = ((-1, True), (-1, True), (-1, False), (1, False), (0, False))
# How often a step is a client's.
CLIENTS_SHARE: Final = 0.85
PRODUCERS_SHARE: Final = 0.85
# How often a client's step is that of somebody who deletes records. In most runs nobody does: what is deleted is not
# compared any more.
DELETERS_SHARES: Final = (0.0, 0.0, 0.02)
# How much each replica keeps of a log, -1 for all: five segments, or so little that nothing is left of what a broker
# has that was away.
RETENTION_BYTES: Final = (-1, -1, -1, -1, 7_500, 2_000)


class ClusterRun(Stage):
    """`step` raises BrokenPromise."""

    segments_are_small = True

    def __init__(self, seed: int, home: Path) -> None:
        super().__init__(seed)
        self.promises = Promises(PARTITIONS)
        self.checkers = Checkers(self.promises, self.ensemble, self.disks, PARTITIONS)
        self.faults = faults.Faults(self)
        self.open()
        try:
            count = self.dice.choice(BROKERS)
            self.come_up(count, home)
            self._boot()
        except BaseException:
            self.close()
            raise
        self.producers = [
            Producer(PARTITIONS * number + index, index, acks, idempotent, self.around, self.promises, self.tell)
            for number, (acks, idempotent) in enumerate(PRODUCERS)
            for index in range(PARTITIONS)
        ]
        self.consumers = [Consumer(index, self.around, self.promises, self.tell) for index in range(PARTITIONS)]
        self.deleters = [Deleter(index, self.around, self.promises, self.tell) for index in range(PARTITIONS)]
        self._deleters_share = self.dice.choice(DELETERS_SHARES)
        self._verbs, self._weights = list(faults.WEIGHTS), list(faults.WEIGHTS.values())

    def _boot(self) -> None:
        dice, ids = self.dice, list(self.hosts)
        assignment = {index: tuple(dice.sample(ids, 3)) for index in range(PARTITIONS)}
        retention_bytes = dice.choice(RETENTION_BYTES)
        self.promises.is_kept = retention_bytes < 0
        config = {"min.insync.replicas": str(dice.choice(MIN_INSYNC)), "segment.bytes": "1500"}
        self.create(TOPIC, assignment, config | {"retention.bytes": str(retention_bytes)})
        self.until(lambda: len(self.states()) == PARTITIONS, BOOT_MS_MAX, "the topic is led")

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        dice = self.dice
        self.steps += 1
        if dice.random() < CLIENTS_SHARE:
            die = dice.random()
            if die < PRODUCERS_SHARE:
                dice.choice(self.producers).produce(dice)
            elif die >= 1 - self._deleters_share:
                dice.choice(self.deleters).delete(dice)
            else:
                dice.choice(self.consumers).consume()
        else:
            self.harm(self.faults.do, dice.choices(self._verbs, self._weights)[0])
        self.go_on()

    def look(self) -> None:
        self.checkers.look(self.hosts)

    def check(self) -> None:
        """Nothing that the steps do not check."""

    def finish(self) -> None:
        """Everything is mended and everybody comes back: then all is in order again, in bounded time."""
        self.tell("** everything is mended")
        self.faults.heal()
        self.settle(self._unsettled)
        self.checkers.equal_logs(self.hosts)

    def _unsettled(self) -> str:
        if not self.all_registered():
            return "not everybody is registered"
        for client in (*self.producers, *self.deleters):
            if client.is_busy:
                return f"{client.name} is not answered"
        told = (self.unsettled_partition(TOPIC, index, state) for index, state in self.states().items())
        return next((reason for reason in told if reason), "")

    def some_topic(self) -> str:
        return TOPIC

    def states(self) -> dict[int, PartitionStateDocument]:
        return self.states_of(TOPIC, PARTITIONS)
