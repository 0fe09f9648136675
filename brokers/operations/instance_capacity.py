"""Implementation of `instances.interfaces.capacity`: reserves and releases capacity, and forecasts placements."""

from __future__ import annotations

from brokers.operations import dedicated
from brokers.operations.hosts import locked_hosts
from brokers.placement import capacity, forecasts, placement
from instances.choices import ClusterType
from instances.interfaces import PlacementForecast
from instances.models import Instance


class InstanceCapacity(capacity.CapacityReservations):
    """Implements `instances.interfaces.capacity`."""

    def forecast(self, instance: Instance) -> PlacementForecast:
        """Returns the forecast for an instance: it would be placed, a cluster would be formed for it, or it would wait.

        Call in a transaction.
        """
        clusters = capacity.lock_candidate_clusters(instance)
        headrooms = capacity.headrooms(clusters, tenant_id=instance.tenant_id)
        choice = placement.choose_cluster(headrooms, **capacity.size_of(instance))
        if choice is not None:
            brokers = len(choice.broker_ids)
            return PlacementForecast(
                fact=f"There is room: {brokers} brokers.", data={"outcome": "placed", "brokers": brokers}
            )
        if instance.cluster_type == ClusterType.DEDICATED:
            planned = dedicated.plan_for(instance, locked_hosts())
            if planned is not None:
                brokers = len(planned.host_ids)
                fact = f"A cluster of its own would be formed: {brokers} brokers."
                return PlacementForecast(fact=fact, data={"outcome": "forms_cluster", "brokers": brokers})
        missing_capacity = forecasts.missing_capacity(instance, headrooms)
        return PlacementForecast(fact=f"It would wait. {missing_capacity.detail}", data=missing_capacity.data)
