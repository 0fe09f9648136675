"""What instances store by this broker: the logs it leads, once for each replica they shall have.

That is the one definition of the storage an instance uses (docs/GLOSSARY.md): the sum over all brokers counts every
partition by its leader's log. Copies that a rebalance makes meanwhile are not the tenant's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from brokers.engine.cluster.image import ClusterImage, InstanceImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.scheduling.time_slice import yield_to_others
from instances.naming import split_internal

# Logs that are measured in one turn of the loop.
MEASURED_AT_ONCE: Final = 500


class _Led(NamedTuple):
    """The partitions of an instance that an image says this broker leads, with how often each counts."""

    of: InstanceImage
    partitions: list[tuple[str, int, int]]


class StorageUse:
    """`bytes_by_instance`: as it was measured last."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._led: dict[str, _Led] = {}
        self.bytes_by_instance: dict[str, int] = {}

    async def measure(self, instance_ids: Iterable[str]) -> dict[str, int]:
        result: dict[str, int] = {}
        measured = 0
        for instance_id in instance_ids:
            result[instance_id] = self.of(instance_id)
            measured += 1 + len(self._led[instance_id].partitions) if instance_id in self._led else 1
            if measured >= MEASURED_AT_ONCE:
                measured = 0
                await yield_to_others()
        return result

    def of(self, instance_id: str) -> int:
        """One instance, at once."""
        instance = self._services.metadata.current.image.instances.get(instance_id)
        if instance is None:
            return 0
        known = self._led.get(instance_id)
        if known is None or known.of is not instance:
            known = self._led[instance_id] = _Led(instance, self._led_of(instance))
        table, result = self._services.storage.table, 0
        for topic, index, replicas in known.partitions:
            partition = table.get(topic, index)
            if partition is not None and not partition.offline:
                result += partition.disk_bytes * replicas
        self.bytes_by_instance[instance_id] = result
        return result

    def partitions_led(self, instance_id: str) -> int:
        """As it was measured last."""
        known = self._led.get(instance_id)
        return 0 if known is None else len(known.partitions)

    def is_outdated(self, instance_id: str) -> bool:
        """Whether this broker may lead other partitions of it than when it was measured. The one that led them reports
        less in a second, and is believed when the others have reported.
        """
        known = self._led.get(instance_id)
        return known is None or known.of is not self._services.metadata.current.image.instances.get(instance_id)

    def _led_of(self, instance: InstanceImage) -> list[tuple[str, int, int]]:
        me = self._services.broker_id
        return [
            (topic.name, partition.index, len(partition.target))
            for topic in instance.stored_topics
            for partition in topic.partitions
            if partition.leader == me
        ]

    def forget(self, instance_id: str) -> None:
        self._led.pop(instance_id, None)
        self.bytes_by_instance.pop(instance_id, None)

    def held_bytes(self, image: ClusterImage) -> Counter[str]:
        """What all logs here take, led or followed, once for each replica: for a start, at which nobody leads yet."""
        result: Counter[str] = Counter()
        for partition in self._services.storage.table:
            instance_id, _ = split_internal(partition.topic)
            topic = image.topics.get(partition.topic)
            if instance_id is not None and topic is not None and partition.index < len(topic.partitions):
                result[instance_id] += partition.disk_bytes * len(topic.partitions[partition.index].target)
        return result
