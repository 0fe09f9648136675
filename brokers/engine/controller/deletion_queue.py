"""Topics to be deleted, an instance's after another's: who deletes a thousand is not before somebody who deletes one.

Pure.
"""

from __future__ import annotations

from collections import deque

from brokers.engine.cluster.image import TopicImage


class DeletionQueue:
    """First in, first out within an instance (None: the cluster's own); the instances take turns."""

    def __init__(self) -> None:
        self._of: dict[str | None, deque[TopicImage]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def put(self, topic: TopicImage) -> None:
        self._of.setdefault(topic.instance_id, deque()).append(topic)

    def pop(self) -> TopicImage:
        """Raises StopIteration when it is empty."""
        instance_id = next(iter(self._of))
        topics = self._of.pop(instance_id)
        topic = topics.popleft()
        if topics:
            self._of[instance_id] = topics  # behind the others
        return topic

    def clear(self) -> None:
        self._of.clear()
