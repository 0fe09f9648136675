"""Updates accountings when an instance's bandwidth, or a leader of its partitions, changes (CKA-27, CKA-34, CKA-35)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from brokers.contract.documents import BROKER_SCOPE
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster.image import ClusterImage, InstanceImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.throttling.layout import POOLED, Layout


class Bandwidth:
    """Keeps the shares of instances up to date with the leaders of their partitions. A broker has no share once the
    metadata no longer has it.
    """

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._seen: dict[str, tuple[InstanceImage, Counter[int], int]] = {}
        self._broker_epochs: Mapping[int, int] = {}
        # Leaders of each instance in the current metadata.
        self.layouts: dict[str, Layout] = {}

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        epochs = {broker.id: broker.epoch for broker in after.brokers.values()}
        known, self._broker_epochs = self._broker_epochs, epochs
        changed = {id for id in known.keys() | epochs.keys() if known.get(id) != epochs.get(id)}
        for instance_id, instance in after.instances.items():
            seen = self._seen.get(instance_id)
            if seen is None or seen[0] is not instance:
                seen = self._seen[instance_id] = (instance, *_leaders(instance))
            elif changed.isdisjoint(seen[1]):
                continue
            self._update(*seen)
        for instance_id in [known for known in self._seen if known not in after.instances]:
            del self._seen[instance_id], self.layouts[instance_id]
            self._services.accounting.accountings.retire(instance_id)
        self._services.metadata.bump_version()
        if before.quotas is not after.quotas:
            for instance_id, accounting in self._services.accounting.accountings:
                if before.quotas.of_instance(instance_id) is not after.quotas.of_instance(instance_id):
                    accounting.client_quotas.release_waits()

    def _update(self, instance: InstanceImage, leaders: Counter[int], moves: int) -> None:
        here, epochs, document = self._services.broker_id, self._broker_epochs, instance.document
        # Partitions led here have a limit even while this broker is not registered.
        live = {broker: count for broker, count in leaders.items() if broker in epochs or broker == here}
        is_shared = document.quota_scope != BROKER_SCOPE
        layout = Layout.of(live, epochs, document.bandwidth_policy, moves=moves, is_shared=is_shared)
        self.layouts[instance.id] = layout
        now_ms = self._services.clock.monotonic_ms()
        accounting = self._services.accounting.accountings.of(instance.id)
        accounting.shares.update(here, layout, document.produce_bps, document.consume_bps, now_ms)
        accounting.client_shares.update(here, layout, now_ms)
        accounting.topic_quotas.release_waits()
        accounting.topic_quotas.is_pooled = layout.effective_policy == POOLED


def _leaders(instance: InstanceImage) -> tuple[Counter[int], int]:
    """Returns the number of partitions by leader, and the number of leader changes."""
    partitions = [partition for topic in instance.topics.values() for partition in topic.partitions]
    leaders = Counter(partition.leader for partition in partitions)
    leaders.pop(NO_LEADER, None)
    return leaders, sum(partition.leader_epoch for partition in partitions)
