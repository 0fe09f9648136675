"""Topics and partitions that this broker writes or wrote, and that its image has not shown yet: they count against
the partitions of their instance, or many who create at the same time would each find room for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.topic_plans import CreatedTopic

# What no image has shown after so long was deleted again in between two of them, or never written.
IN_FLIGHT_MS_MAX: Final = 30_000


class InFlightCreations:
    """By instance and internal name. `now_ms` is wall time; subscribe `on_image` to the images."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._plans: dict[str, dict[str, tuple[CreatedTopic, int]]] = {}

    def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        """What this image shows counts as part of it, and may be gone from the next one."""
        self._drop(lambda plan, _: _is_shown(after, plan))

    def beside(self, instance_id: str | None, name: str) -> list[CreatedTopic]:
        """What is underway for the instance, but for a topic of this (its owner's) name."""
        now_ms = self._now_ms()
        self._drop(lambda _, since_ms: not 0 <= now_ms - since_ms < IN_FLIGHT_MS_MAX)
        return [plan for plan, _ in self._plans.get(instance_id or "", {}).values() if plan.user_name != name]

    @contextmanager
    def writing(self, plan: CreatedTopic) -> Iterator[None]:
        """Counted from here on, unless it turns out that it cannot be written."""
        if plan.instance_id is None:
            yield
            return
        self._plans.setdefault(plan.instance_id, {})[plan.internal_name] = plan, self._now_ms()
        try:
            yield
        except Exception:
            self._drop(lambda kept, _: kept is plan)
            raise

    def _drop(self, is_over: Callable[[CreatedTopic, int], bool]) -> None:
        for instance_id, plans in tuple(self._plans.items()):
            left = {name: kept for name, kept in plans.items() if not is_over(*kept)}
            if left:
                self._plans[instance_id] = left
            else:
                del self._plans[instance_id]


def _is_shown(image: ClusterImage, plan: CreatedTopic) -> bool:
    topic = image.topics.get(plan.internal_name)
    return topic is not None and len(topic.partitions) >= len(plan.assignment)
