"""Storage of instances on this broker: the logs that it leads, multiplied by their number of replicas.

This is the definition of an instance's used storage (docs/GLOSSARY.md): the sum over all brokers counts every partition
by its leader's log. Temporary copies of a rebalance are not charged to the tenant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from brokers.engine.cluster.image import ClusterImage, InstanceImage, TopicImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.scheduling.time_slice import yield_to_others
from instances.naming import split_internal

# Maximum number of topics and logs that are inspected in one turn of the event loop.
INSPECTED_PER_TURN_MAX: Final = 500


class InstanceStorage(Protocol):
    """Storage of instances on one broker. `bytes_by_instance` has the result of each instance's last measurement."""

    bytes_by_instance: dict[str, int]
    # False while nothing may be reported, because nothing was measured yet.
    is_known: bool

    async def measure(self, instance_ids: Iterable[str]) -> dict[str, int]: ...
    def measure_now(self, instance_id: str) -> int: ...
    def replicas_by_topic(self, instance_id: str) -> Mapping[str, Mapping[int, int]] | None: ...
    def led_partition_count(self, instance_id: str) -> int: ...
    def is_outdated(self, instance_id: str) -> bool: ...
    def forget(self, instance_id: str) -> None: ...
    def local_bytes(self, image: ClusterImage) -> Counter[str]: ...
    def close(self) -> None: ...


class _LedPartitions(NamedTuple):
    """Partitions that this broker leads according to `image`, as (topic, index, number of replicas)."""

    image: InstanceImage
    partitions: list[tuple[str, int, int]]


class StorageUse:
    """Storage of instances on one broker. `bytes_by_instance` has the result of each instance's last measurement."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._led_by_instance: dict[str, _LedPartitions] = {}
        self.bytes_by_instance: dict[str, int] = {}
        self.is_known = True

    async def measure(self, instance_ids: Iterable[str]) -> dict[str, int]:
        """Returns the bytes of instances, measured with `INSPECTED_PER_TURN_MAX` logs in each turn of the loop."""
        result: dict[str, int] = {}
        inspected_count = 0
        for instance_id in instance_ids:
            steps = self._measure_in_steps(instance_id)
            while True:
                try:
                    inspected_count += next(steps)
                except StopIteration as end:
                    result[instance_id] = end.value
                    break
                if inspected_count >= INSPECTED_PER_TURN_MAX:
                    inspected_count = 0
                    await yield_to_others()
        return result

    def measure_now(self, instance_id: str) -> int:
        """Returns the bytes of one instance, measured without yielding to the event loop."""
        steps = self._measure_in_steps(instance_id)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return int(end.value)

    def _measure_in_steps(self, instance_id: str) -> Generator[int, None, int]:
        """Measures one instance, and returns its bytes. Yields the number of topics or logs inspected since the
        previous yield, at most `INSPECTED_PER_TURN_MAX`.
        """
        instance = self._services.metadata.current.image.instances.get(instance_id)
        if instance is None:
            return 0
        led = self._led_by_instance.get(instance_id)
        if led is None or led.image is not instance:
            partitions: list[tuple[str, int, int]] = []
            topics = instance.stored_topics
            for begin in range(0, len(topics), INSPECTED_PER_TURN_MAX):
                part_of_topics = topics[begin : begin + INSPECTED_PER_TURN_MAX]
                partitions += self._find_led_partitions(part_of_topics)
                yield len(part_of_topics)
            led = self._led_by_instance[instance_id] = _LedPartitions(instance, partitions)
        table, result = self._services.storage.table, 0
        for begin in range(0, len(led.partitions), INSPECTED_PER_TURN_MAX):
            part = led.partitions[begin : begin + INSPECTED_PER_TURN_MAX]
            for topic, index, replicas in part:
                partition = table.get(topic, index)
                if partition is not None and not partition.offline:
                    result += partition.disk_bytes * replicas
            yield len(part)
        yield 1
        self.bytes_by_instance[instance_id] = result
        return result

    def replicas_by_topic(self, instance_id: str) -> None:
        """Returns None: a broker reports the partitions that it leads."""
        return

    def led_partition_count(self, instance_id: str) -> int:
        """Returns the number of led partitions at the last measurement."""
        led = self._led_by_instance.get(instance_id)
        return 0 if led is None else len(led.partitions)

    def is_outdated(self, instance_id: str) -> bool:
        """True if this broker may lead other partitions of the instance than at the last measurement. Such an instance
        is reported at once: the decrease of the former leader counts only when the other brokers have reported.
        """
        led = self._led_by_instance.get(instance_id)
        return led is None or led.image is not self._services.metadata.current.image.instances.get(instance_id)

    def _find_led_partitions(self, topics: Iterable[TopicImage]) -> list[tuple[str, int, int]]:
        broker_id = self._services.broker_id
        return [
            (topic.name, partition.index, len(partition.target))
            for topic in topics
            for partition in topic.partitions
            if partition.leader == broker_id
        ]

    def forget(self, instance_id: str) -> None:
        self._led_by_instance.pop(instance_id, None)
        self.bytes_by_instance.pop(instance_id, None)

    def close(self) -> None:
        """Does nothing: logs are measured without a connection."""

    def local_bytes(self, image: ClusterImage) -> Counter[str]:
        """Returns the bytes of all local logs, led or followed, by instance, times the number of replicas. Used when
        the broker starts, before it leads any partition.
        """
        result: Counter[str] = Counter()
        for partition in self._services.storage.table:
            instance_id, _ = split_internal(partition.topic)
            topic = image.topics.get(partition.topic)
            if instance_id is not None and topic is not None and partition.index < len(topic.partitions):
                result[instance_id] += partition.disk_bytes * len(topic.partitions[partition.index].target)
        return result
