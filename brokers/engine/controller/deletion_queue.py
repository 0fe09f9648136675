"""Fair queue of topics to be deleted, by tenant, then by instance.

A thousand deletions of one tenant do not delay the deletion of another tenant's topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from brokers.engine.cluster.image import TopicImage
from brokers.engine.scheduling.accounts import InstanceAccounts, Ownership
from brokers.engine.scheduling.fair_queue import FairQueue

# Cost of a deletion, and the quantum that a tenant, and one of its instances, gets in each round.
DELETION_COST: Final = 1.0
# The account of the cluster's own topics.
CLUSTER_ACCOUNT: Final = ""


class DeletionQueue:
    """Deletions in the order in which they are carried out; first in, first out within an instance."""

    def __init__(self, tenant_of: Callable[[str], str]) -> None:
        self._ownership = Ownership(tenant_of)
        self.clear()

    def __bool__(self) -> bool:
        return bool(self._topics)

    def put(self, topic: TopicImage) -> None:
        """Appends a topic, unless one of its name is queued."""
        if topic.name not in self._topics:
            self._topics[topic.name] = topic
            self._queue.enqueue(self._accounts.account_to_enqueue(topic.instance_id or CLUSTER_ACCOUNT), topic.name)

    def pop(self) -> TopicImage:
        """Removes and returns the next topic. The queue must not be empty."""
        instance = self._queue.next_instance()
        assert instance is not None, "it is empty"
        name = self._queue.pop(instance)
        self._queue.charge(instance, DELETION_COST)
        self._accounts.forget_idle(self._queue)
        return self._topics.pop(name)

    def clear(self) -> None:
        """Removes all topics."""
        self._queue: FairQueue[str] = FairQueue(DELETION_COST)
        self._accounts: InstanceAccounts[str] = InstanceAccounts(DELETION_COST, self._ownership)
        self._topics: dict[str, TopicImage] = {}
