"""Updates bandwidth shares when an instance's limits or the leaders of its partitions change (CKA-27, CKA-34, CKA-35).

Consumers with a rack may read from followers if the instance's brokers are in several racks. The bandwidth of consumers
is then divided by replicas, not by leaders, so that the parts of all brokers still add up to the instance's bandwidth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from brokers.contract.documents import BROKER_SCOPE
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, InstanceImage, LayoutTotals
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.throttling.client_shares import CONSUME
from brokers.engine.throttling.layout import POOLED, Layout

# Minimum number of racks among an instance's brokers for its consumers to read from followers.
RACKS_MIN: Final = 2


class Bandwidth:
    """Keeps the shares of instances up to date with the leaders of their partitions. A broker that is not in the
    metadata gets no share.
    """

    def __init__(self, services: BrokerServices, *, selects_by_rack: bool = True) -> None:
        self._services = services
        self._selects_by_rack = selects_by_rack
        self._applied_image_by_instance: dict[str, InstanceImage] = {}
        self._brokers: Mapping[int, BrokerInfo] = {}
        # By instance: its leader partitions per broker in the current metadata; and its replicas per broker, only for
        # instances whose consumers may read from followers.
        self.layouts: dict[str, Layout] = {}
        self.consume_layouts: dict[str, Layout] = {}

    def layout(self, instance_id: str, direction: int) -> Layout | None:
        """Returns the layout by which an instance's bandwidth in `direction` (PRODUCE or CONSUME) is divided; None for
        an unknown instance.
        """
        layout = self.layouts.get(instance_id)
        return self.consume_layouts.get(instance_id, layout) if direction == CONSUME else layout

    def totals_of(self, instance: InstanceImage) -> LayoutTotals:
        """Returns the numbers by which the bandwidth of an instance is divided. A subclass may divide by others."""
        return instance.layout_totals

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Updates the shares of instances whose document, partitions or brokers changed."""
        previous_brokers, self._brokers = self._brokers, after.brokers
        changed = {
            id
            for id in previous_brokers.keys() | after.brokers.keys()
            if _epoch(previous_brokers, id) != _epoch(after.brokers, id)
        }
        for instance_id, instance in after.instances.items():
            if self._applied_image_by_instance.get(instance_id) is instance:
                totals = self.totals_of(instance)
                if changed.isdisjoint(totals.leaders) and changed.isdisjoint(totals.replicas):
                    continue
            self._applied_image_by_instance[instance_id] = instance
            self._update(instance)
        for instance_id in [known for known in self._applied_image_by_instance if known not in after.instances]:
            del self._applied_image_by_instance[instance_id], self.layouts[instance_id]
            self.consume_layouts.pop(instance_id, None)
            self._services.accounting.accountings.retire(instance_id)
        self._services.metadata.bump_version()
        if before.quotas is not after.quotas:
            for instance_id, accounting in self._services.accounting.accountings:
                if before.quotas.of_instance(instance_id) is not after.quotas.of_instance(instance_id):
                    accounting.client_quotas.release_waits()

    def _update(self, instance: InstanceImage) -> None:
        broker_id, document, totals = self._services.broker_id, instance.document, self.totals_of(instance)
        layout = self._layout(instance, totals.leaders, totals.moves)
        replica_layout = (
            self._layout(instance, totals.replicas, totals.moves)
            if self._reads_followers(layout, totals.replicas)
            else None
        )
        instance_id = instance.id
        self.layouts[instance_id] = layout
        self.consume_layouts.pop(instance_id, None)
        if replica_layout is not None:
            self.consume_layouts[instance_id] = replica_layout
        now_ms = self._services.clock.monotonic_ms()
        accounting = self._services.accounting.accountings.get_or_create(instance_id)
        accounting.shares.update(broker_id, layout, document.produce_bps, document.consume_bps, now_ms, replica_layout)
        accounting.client_shares.update(broker_id, layout, now_ms, replica_layout)
        policies = {layout.effective_policy, (replica_layout or layout).effective_policy}
        accounting.topic_quotas.on_layout_changed(is_pooled=POOLED in policies)

    def _layout(self, instance: InstanceImage, counts: Counter[int], moves: int) -> Layout:
        broker_id, document = self._services.broker_id, instance.document
        # Partitions here have a limit even while this broker is not registered.
        live = {broker: count for broker, count in counts.items() if broker in self._brokers or broker == broker_id}
        epochs = {broker: self._brokers[broker].epoch for broker in live if broker in self._brokers}
        is_shared = document.quota_scope != BROKER_SCOPE
        return Layout.from_leaders(live, epochs, document.bandwidth_policy, moves=moves, is_shared=is_shared)

    def _reads_followers(self, layout: Layout, brokers: Iterable[int]) -> bool:
        """True if the brokers are in several racks and share the bandwidth in a pool."""
        if not self._selects_by_rack or layout.policy != POOLED:
            return False
        racks = {self._brokers[broker].rack for broker in brokers if broker in self._brokers}
        return len(racks - {None}) >= RACKS_MIN


def _epoch(brokers: Mapping[int, BrokerInfo], id: int) -> int | None:
    broker = brokers.get(id)
    return None if broker is None else broker.epoch
