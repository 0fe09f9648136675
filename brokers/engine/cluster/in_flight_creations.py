"""Topics and partitions that were planned or written by this broker, and whose leaders are not in its image yet.

They count against the instance's partition limit, because otherwise concurrent creations would each see free capacity.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from brokers.contract.documents import TopicDocument
from brokers.engine.cluster import stored_bytes
from brokers.engine.cluster.changes import NO_CREATION, Reservation
from brokers.engine.cluster.image import ClusterImage

# A creation that no image shows after this time was deleted between two images, or never written.
IN_FLIGHT_MS_MAX: Final = 30_000


@dataclass(frozen=True, kw_only=True)
class CreatedTopic:
    """A topic that was or, with `validate_only`, would be written; `assignment` has the replicas of all partitions."""

    internal_name: str
    user_name: str
    instance_id: str | None
    topic_id: bytes
    assignment: Mapping[int, tuple[int, ...]]
    config: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        return len(self.assignment[0])

    @property
    def document(self) -> TopicDocument:
        return TopicDocument(topic_id=encode_topic_id(self.topic_id), assignment=dict(self.assignment), identified=True)

    @cached_property
    def stored_bytes(self) -> int:
        replicas = sum(map(len, self.assignment.values()))
        return stored_bytes.of_topic(self.internal_name, self.user_name, self.config, len(self.assignment), replicas)


def encode_topic_id(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


class InFlightCreations:
    """Creations by instance and internal name; `now_ms` is wall time, and `on_image` must be subscribed to the
    images.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._plans: dict[str, dict[str, tuple[CreatedTopic, int]]] = {}
        # Version of the creations node after this broker's last creation, by instance.
        self._last_versions: dict[str, int] = {}

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Forgets the creations whose topics this image shows with leaders, or shows as deleted."""
        self._drop(lambda plan, _: _is_shown(after, plan) or _was_deleted(before, after, plan))
        for instance_id in before.instances.keys() - after.instances.keys():
            self._last_versions.pop(instance_id, None)

    def reserve(self, image: ClusterImage, instance_id: str | None) -> Reservation | None:
        """Returns a reservation for a decision based on this image and on this broker's creations so far; None if the
        number of partitions is unlimited.
        """
        instance = None if instance_id is None else image.instances.get(instance_id)
        if instance is None or instance.document.partitions_max is None:
            return None
        in_image = image.creations.get(instance.id, NO_CREATION)
        return Reservation(instance.id, max(in_image, self._last_versions.get(instance.id, NO_CREATION)))

    def record_reservation(self, reservation: Reservation | None) -> None:
        """Records a reservation that was written with its creation."""
        if reservation is not None:
            self._last_versions[reservation.instance_id] = reservation.new_version

    def forget(self, instance_id: str) -> None:
        """Forgets this broker's last creation for the instance."""
        self._last_versions.pop(instance_id, None)

    def partitions(self, instance_id: str) -> int:
        """Returns the number of partitions of the instance that are being created and have no leaders yet."""
        return sum(len(plan.assignment) for plan in self._unfinished_creations(instance_id))

    def _unfinished_creations(self, instance_id: str | None) -> list[CreatedTopic]:
        now_ms = self._now_ms()
        self._drop(lambda _, since_ms: not 0 <= now_ms - since_ms < IN_FLIGHT_MS_MAX)
        return [plan for plan, _ in self._plans.get(instance_id or "", {}).values()]

    def pending_except(self, instance_id: str | None, name: str) -> list[CreatedTopic]:
        """Returns the pending creations of the instance, except for a topic of this (tenant's) name."""
        return [plan for plan in self._unfinished_creations(instance_id) if plan.user_name != name]

    @contextmanager
    def counted_during_write(self, plan: CreatedTopic) -> Iterator[None]:
        """Counts a creation until an image shows it, or until the write in the `with` block fails."""
        if plan.instance_id is None:
            yield
            return
        self._plans.setdefault(plan.instance_id, {})[plan.internal_name] = plan, self._now_ms()
        try:
            yield
        except Exception:
            self._drop(lambda pending, _: pending is plan)
            raise

    def _drop(self, is_finished: Callable[[CreatedTopic, int], bool]) -> None:
        for instance_id, plans in tuple(self._plans.items()):
            unfinished = {name: creation for name, creation in plans.items() if not is_finished(*creation)}
            if unfinished:
                self._plans[instance_id] = unfinished
            else:
                del self._plans[instance_id]


def _is_shown(image: ClusterImage, plan: CreatedTopic) -> bool:
    topic = image.topics.get(plan.internal_name)
    return topic is not None and len(topic.partitions) >= len(plan.assignment) and topic.has_leaders


def _was_deleted(before: ClusterImage, after: ClusterImage, plan: CreatedTopic) -> bool:
    """True if the topic was deleted before it had leaders."""
    topic = after.topics.get(plan.internal_name)
    return plan.internal_name in before.topics and (topic is None or topic.deleting)
