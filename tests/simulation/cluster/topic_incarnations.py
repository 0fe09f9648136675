"""Incarnation of a tenant's topic: from its node in ZooKeeper until it is marked for deletion.

A topic that is created again under the name is another incarnation, with its own id, promises and clients.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Final, NamedTuple

from brokers.contract.documents import TopicDocument
from tests.simulation.cluster.broker import SimulationContext
from tests.simulation.cluster.checkers import Checkers
from tests.simulation.cluster.clients import Consumer, Producer
from tests.simulation.cluster.deleters import Deleter
from tests.simulation.cluster.promises import Promises
from tests.simulation.cluster.records import Topic

PARTITIONS_MAX: Final = 4
# Producers of each partition, by their acks.
ACKS: Final = (-1, -1, 1)


class Strays(NamedTuple):
    """Requests by name that the next topic of this name may process: batches, and deletions as (partition, offset)."""

    batches: frozenset[int] = frozenset()
    deletions: frozenset[tuple[int, int]] = frozenset()


class TopicIncarnation:
    """One incarnation of a topic, with a `number` in the run. `strays` are requests of earlier incarnations."""

    def __init__(
        self,
        number: int,
        name: str,
        document: TopicDocument,
        context: SimulationContext,
        strays: Strays,
        note: Callable[[str], object],
    ) -> None:
        self.number = number
        self.topic = Topic(name, urlsafe_b64decode(document.topic_id + "=="))
        self.promises = Promises(PARTITIONS_MAX)
        self.checkers = Checkers(self.promises, context.ensemble, context.disks, 0, self.topic)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.deleters: list[Deleter] = []
        self._context = context
        self._note = note
        self._earlier = strays
        for index in range(PARTITIONS_MAX):
            for crc in strays.batches:
                self.promises.note_sent(index, crc)
        for index, offset in strays.deletions:
            self.promises.note_deletion_request(index, offset)
        self.grow(document)

    def grow(self, document: TopicDocument) -> None:
        """Adds clients for new partitions."""
        context, promises, note, topic = self._context, self.promises, self._note, self.topic
        for index in range(self.checkers.partitions, len(document.assignment)):
            for acks in ACKS:
                number = 100 * self.number + len(self.producers)
                self.producers.append(Producer(number, index, acks, False, context, promises, note, topic))
            self.consumers.append(Consumer(index, context, promises, note, topic))
            self.deleters.append(Deleter(index, context, promises, note, topic))
        self.checkers.grow(len(document.assignment))

    def end(self) -> Strays:
        """Stops the clients and returns their requests that may still be processed."""
        for client in (*self.producers, *self.consumers, *self.deleters):
            client.stop()
        batches = {crc for producer in self.producers for crc in producer.strays}
        deletions = {(deleter.index, deleter.offset) for deleter in self.deleters if deleter.unanswered}
        return Strays(self._earlier.batches | batches, self._earlier.deletions | deletions)
