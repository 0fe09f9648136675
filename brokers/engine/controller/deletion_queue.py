"""Fair queue of topics to be deleted: an instance that deletes a thousand does not delay another that deletes one.
Pure.
"""

from __future__ import annotations

from collections import deque

from brokers.engine.cluster.image import TopicImage


class DeletionQueue:
    """A queue with one lane per instance (None for the cluster's own topics), served in turn; FIFO within a lane."""

    def __init__(self) -> None:
        self._topics_by_instance: dict[str | None, deque[TopicImage]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics_by_instance)

    def put(self, topic: TopicImage) -> None:
        self._topics_by_instance.setdefault(topic.instance_id, deque()).append(topic)

    def pop(self) -> TopicImage:
        """Removes and returns the next topic. Raises StopIteration if the queue is empty."""
        instance_id = next(iter(self._topics_by_instance))
        topics = self._topics_by_instance.pop(instance_id)
        topic = topics.popleft()
        if topics:
            self._topics_by_instance[instance_id] = topics  # behind the others
        return topic

    def clear(self) -> None:
        self._topics_by_instance.clear()
