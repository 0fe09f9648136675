"""Clusters, hosts, brokers and placements; the one act is to restart a broker."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors, services
from brokers.choices import Health
from brokers.models import Broker, Cluster, Host
from tenants.access import fetch
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope


class RoomOut(serializers.Serializer):
    bandwidth_mb_s = serializers.IntegerField()
    storage_gb = serializers.IntegerField()
    sold_bandwidth_mb_s = serializers.IntegerField()
    sold_storage_gb = serializers.IntegerField()
    instances = serializers.IntegerField()


class ClusterOut(serializers.ModelSerializer[Cluster]):
    broker_count = serializers.IntegerField()
    room = serializers.SerializerMethodField()

    class Meta:
        model = Cluster
        fields = ("id", "name", "kind", "accepts_instances", "broker_count", "room", "created_at")

    @extend_schema_field(RoomOut)
    def get_room(self, cluster: Cluster) -> dict[str, int]:
        return dict(RoomOut(selectors.room_of(cluster)).data)


class HostOut(serializers.ModelSerializer[Host]):
    broker_count = serializers.IntegerField()

    class Meta:
        model = Host
        fields = ("id", "name", "advertised_host", "port_first", "port_last", "agent_seen_at", "broker_count")


class BrokerOut(serializers.ModelSerializer[Broker]):
    cluster_id = serializers.CharField()
    host = serializers.CharField(source="host.name")
    health = serializers.SerializerMethodField()
    status = serializers.DictField(source="observed", help_text="What the broker last said of itself.")

    class Meta:
        model = Broker
        fields = (
            "id",
            "cluster_id",
            "number",
            "host",
            "rack",
            "wanted",
            "health",
            "process_state",
            "process_since",
            "process_restarts",
            "process_error",
            "bandwidth_mb_s",
            "storage_gb",
            "observed_at",
            "status",
        )

    @extend_schema_field(serializers.ChoiceField(choices=Health.choices))
    def get_health(self, broker: Broker) -> str:
        health: Health = selectors.health_of(broker)
        return str(health.value)


class PlacementOut(serializers.Serializer):
    instance_id = serializers.CharField()
    tenant_id = serializers.CharField(source="instance.tenant_id")
    cluster_id = serializers.CharField()
    bandwidth_mb_s = serializers.IntegerField()
    storage_gb = serializers.IntegerField()
    placed_at = serializers.DateTimeField()


class ClusterCollection(ApiView):
    tag = "Operator"

    @endpoint("list_clusters", Scope.OPERATOR, page=ClusterOut)
    def get(self, request: Request) -> Response:
        """List clusters."""
        return self.page(selectors.clusters(), ClusterOut, order=("name", "id"))


class HostCollection(ApiView):
    tag = "Operator"

    @endpoint("list_hosts", Scope.OPERATOR, page=HostOut)
    def get(self, request: Request) -> Response:
        """List hosts."""
        return self.page(selectors.hosts(), HostOut, order=("name", "id"))


class BrokerCollection(ApiView):
    tag = "Operator"

    @endpoint("list_brokers", Scope.OPERATOR, page=BrokerOut)
    def get(self, request: Request) -> Response:
        """List brokers with their health."""
        return self.page(selectors.brokers(), BrokerOut, order=("cluster_id", "number", "id"))


class BrokerResource(ApiView):
    tag = "Operator"

    @endpoint("get_broker", Scope.OPERATOR, returns=BrokerOut)
    def get(self, request: Request, broker_id: str) -> Response:
        """Read a broker."""
        return self.one(fetch(selectors.brokers(), pk=broker_id), BrokerOut)


class BrokerRestart(ApiView):
    tag = "Operator"

    @endpoint("restart_broker", Scope.OPERATOR, returns=BrokerOut, status=202, errors=(409,))
    def post(self, request: Request, broker_id: str) -> Response:
        """Restart a broker process; one at a time in a cluster."""
        found: Any = services.restart_broker(acting=self.actor, broker=fetch(selectors.brokers(), pk=broker_id))
        return self.one(found, BrokerOut, status=202, location=f"/api/v1/operator/brokers/{found.pk}")


class PlacementCollection(ApiView):
    tag = "Operator"

    @endpoint("list_placements", Scope.OPERATOR, page=PlacementOut)
    def get(self, request: Request) -> Response:
        """List where instances live."""
        return self.page(selectors.placements(), PlacementOut, order=("cluster_id", "instance_id"))
