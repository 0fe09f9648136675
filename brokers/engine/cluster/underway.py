"""Topics and partitions that this broker writes or wrote, and that its picture does not show yet: they count against
the partitions of their instance, or many who create at the same time would each find room for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.topic_plans import CreatedTopic

# What the picture does not show after so long was deleted again meanwhile, or never written.
UNDERWAY_MS_MAX: Final = 30_000


class Underway:
    """By instance and internal name. `now_ms` is wall time."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._plans: dict[str, dict[str, tuple[CreatedTopic, int]]] = {}

    def beside(self, image: ClusterImage, instance_id: str | None, name: str) -> list[CreatedTopic]:
        """What is underway for the instance, but for a topic of this (its owner's) name."""
        plans = self._plans.get(instance_id or "")
        if not plans:
            return []
        now_ms = self._now_ms()
        for internal, (plan, since_ms) in tuple(plans.items()):
            if _is_shown(image, plan) or not 0 <= now_ms - since_ms < UNDERWAY_MS_MAX:
                del plans[internal]
        return [plan for plan, _ in plans.values() if plan.user_name != name]

    @contextmanager
    def writing(self, plan: CreatedTopic) -> Iterator[None]:
        """Counted from here on, unless it turns out that it cannot be written."""
        if plan.instance_id is None:
            yield
            return
        plans = self._plans.setdefault(plan.instance_id, {})
        kept = plans[plan.internal_name] = plan, self._now_ms()
        try:
            yield
        except Exception:
            if plans.get(plan.internal_name) is kept:
                del plans[plan.internal_name]
            raise


def _is_shown(image: ClusterImage, plan: CreatedTopic) -> bool:
    topic = image.topics.get(plan.internal_name)
    return topic is not None and len(topic.partitions) >= len(plan.assignment)
