"""REST resources of brokers and placements; brokers can be added and restarted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors, services
from brokers.api.base import OperatorView
from brokers.choices import ClusterBackend, ClusterState, Health, SaslMechanism, SecurityProtocol
from brokers.limits import (
    BROKER_BANDWIDTH_MB_S,
    BROKER_CAPACITY_MAX,
    BROKER_STORAGE_GB,
    DIRECTORIES_MAX,
    PATH_CHARS_MAX,
)
from brokers.models import Broker, Cluster
from brokers.operations import membership
from brokers.placement.placement import Fit
from tenants.access import fetch
from tenants.api.base import API_ROOT, endpoint
from tenants.api.strict import Integer, StrictSerializer, Text
from tenants.choices import Scope
from tenants.ids import ID_CHARS_MAX

RACK_CHARS_MAX = 64


class RoomOut(serializers.Serializer):
    bandwidth_mb_s = serializers.IntegerField()
    storage_gb = serializers.IntegerField()
    sold_bandwidth_mb_s = serializers.IntegerField()
    sold_storage_gb = serializers.IntegerField()
    instances = serializers.IntegerField()
    sold_partitions = serializers.IntegerField(help_text="Maximum number of partitions of these instances together.")


class UpstreamNodeOut(serializers.Serializer):
    id = serializers.IntegerField(help_text="Its gateway is the broker with this number.")
    host = serializers.CharField()
    port = serializers.IntegerField()
    rack = serializers.CharField(allow_blank=True)


class BackendOut(serializers.Serializer):
    """Backend of a cluster; all fields but `type` are null for `penstock`. Secrets are never shown."""

    type = serializers.ChoiceField(choices=ClusterBackend.choices)
    bootstrap_servers = serializers.CharField(allow_null=True)
    security_protocol = serializers.ChoiceField(choices=SecurityProtocol.choices, allow_null=True)
    sasl_mechanism = serializers.ChoiceField(choices=SaslMechanism.choices, allow_null=True)
    username = serializers.CharField(allow_null=True)
    ca_pem = serializers.CharField(allow_null=True)
    has_client_certificate = serializers.BooleanField(allow_null=True)
    upstream_cluster_id = serializers.CharField(allow_null=True)
    nodes = UpstreamNodeOut(many=True, allow_null=True, help_text="Brokers of the upstream when it was last probed.")


class ClusterListOut(serializers.ListSerializer):
    """List of clusters whose capacity is read at once, instead of row by row."""

    def to_representation(self, data: Any) -> list[Any]:
        rows = list(data)
        self.child.context["rooms"] = selectors.capacities_of(rows)
        return super().to_representation(rows)


class ClusterOut(serializers.ModelSerializer[Cluster]):
    broker_count = serializers.IntegerField()
    state = serializers.ChoiceField(choices=ClusterState.choices)
    zones = serializers.ListField(
        child=serializers.CharField(), help_text="Its brokers are on hosts there; empty = all."
    )
    made_for = serializers.CharField(
        source="reserved_for_id",
        allow_null=True,
        help_text="Dedicated instance for which it was created automatically.",
    )
    room = serializers.SerializerMethodField()
    backend = serializers.SerializerMethodField()
    tenant_ids = serializers.ListField(
        child=serializers.CharField(), help_text="Tenants whose instances it takes first, and alone; empty = all."
    )

    class Meta:
        model = Cluster
        list_serializer_class = ClusterListOut
        fields = (
            "id", "name", "kind", "backend", "state", "accepts_instances", "tenant_ids", "zones",
            "brokers_per_instance_min", "max_partitions", "max_bandwidth_mb_s", "max_storage_gb", "made_for",
            "broker_count", "room", "created_at",
        )  # fmt: skip

    @extend_schema_field(BackendOut)
    def get_backend(self, cluster: Cluster) -> dict[str, Any]:
        shown = cluster.kafka.public() if cluster.is_kafka else dict.fromkeys(BackendOut().fields)
        return dict(BackendOut({**shown, "type": cluster.backend}).data)

    @extend_schema_field(RoomOut)
    def get_room(self, cluster: Cluster) -> dict[str, int]:
        capacity = self.context.get("rooms", {}).get(cluster.pk) or selectors.capacity_of(cluster)
        return dict(RoomOut(capacity).data)


class BrokerOut(serializers.ModelSerializer[Broker]):
    cluster_id = serializers.CharField()
    host = serializers.CharField(source="host.name")
    health = serializers.SerializerMethodField()
    status = serializers.DictField(source="observed", help_text="Last status reported by the broker.")

    class Meta:
        model = Broker
        fields = (
            "id",
            "cluster_id",
            "number",
            "host",
            "rack",
            "wanted",
            "accepts_instances",
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


class BrokerIn(StrictSerializer):
    cluster_id = Text(max_length=ID_CHARS_MAX)
    host_id = Text(max_length=ID_CHARS_MAX)
    rack = Text(max_length=RACK_CHARS_MAX, required=False)
    data_dirs = serializers.ListField(
        child=Text(max_length=PATH_CHARS_MAX),
        required=False,
        max_length=DIRECTORIES_MAX,
        help_text="Absolute paths on the host. Default: beside the other brokers of the host.",
    )
    bandwidth_mb_s = Integer(required=False, min_value=1, max_value=BROKER_CAPACITY_MAX, default=BROKER_BANDWIDTH_MB_S)
    storage_gb = Integer(required=False, min_value=1, max_value=BROKER_CAPACITY_MAX, default=BROKER_STORAGE_GB)


class PlacementReasonOut(serializers.Serializer):
    cluster_id = serializers.CharField()
    cluster = serializers.CharField()
    fit = serializers.ChoiceField(choices=[fit.value for fit in Fit])
    detail = serializers.CharField()
    own_instances = serializers.IntegerField(help_text="Instances of the same tenant on it.")
    left_bandwidth_mb_s = serializers.IntegerField()
    left_storage_gb = serializers.IntegerField()


class PlacementOut(serializers.Serializer):
    instance_id = serializers.CharField()
    tenant_id = serializers.CharField(source="instance.tenant_id")
    cluster_id = serializers.CharField()
    bandwidth_mb_s = serializers.IntegerField()
    storage_gb = serializers.IntegerField()
    placed_at = serializers.DateTimeField()
    reasons = PlacementReasonOut(many=True, help_text="Evaluation of each cluster at that time, the chosen one first.")


class BrokerCollection(OperatorView):
    @endpoint("list_brokers", Scope.OPERATOR, page_item=BrokerOut)
    def get(self, request: Request) -> Response:
        """List brokers with their health."""
        return self.page(selectors.brokers(), BrokerOut, order=("cluster_id", "number", "id"))

    @endpoint("add_broker", Scope.OPERATOR, body=BrokerIn, returns=BrokerOut, status=201, errors=(404, 409))
    def post(self, request: Request) -> Response:
        """Add a broker to a cluster; the agent of its host starts it. A rebalance gives it its share.

        On a Kafka cluster it is the gateway of the first upstream broker that has none.
        """
        body = dict(self.body)
        cluster = fetch(selectors.clusters(), pk=body.pop("cluster_id"))
        host = fetch(selectors.hosts(), pk=body.pop("host_id"))
        broker = membership.add_broker(acting=self.actor, cluster=cluster, host=host, dry_run=self.dry_run, **body)
        return self.one(broker, BrokerOut, status=201, location=f"{API_ROOT}/operator/brokers/{broker.pk}")


class BrokerResource(OperatorView):
    @endpoint("get_broker", Scope.OPERATOR, returns=BrokerOut)
    def get(self, request: Request, broker_id: str) -> Response:
        """Read a broker."""
        return self.one(fetch(selectors.brokers(), pk=broker_id), BrokerOut)


class BrokerRestart(OperatorView):
    @endpoint("restart_broker", Scope.OPERATOR, returns=BrokerOut, status=202, errors=(409,))
    def post(self, request: Request, broker_id: str) -> Response:
        """Restart a broker process; one at a time in a cluster."""
        result: Any = services.restart_broker(acting=self.actor, broker=fetch(selectors.brokers(), pk=broker_id))
        return self.one(result, BrokerOut, status=202, location=f"/api/v1/operator/brokers/{result.pk}")


class BrokerStart(OperatorView):
    @endpoint("start_broker", Scope.OPERATOR, returns=BrokerOut, status=202, errors=(409,))
    def post(self, request: Request, broker_id: str) -> Response:
        """Start a broker that was stopped on purpose, after its removal was abandoned."""
        result: Any = services.start_broker(acting=self.actor, broker=fetch(selectors.brokers(), pk=broker_id))
        return self.one(result, BrokerOut, status=202, location=f"{API_ROOT}/operator/brokers/{result.pk}")


class BrokerAcceptance(OperatorView):
    @endpoint("accept_instances", Scope.OPERATOR, returns=BrokerOut, errors=(409,))
    def post(self, request: Request, broker_id: str) -> Response:
        """Return an emptied broker to service: further instances are placed on it."""
        result: Any = services.accept_instances(acting=self.actor, broker=fetch(selectors.brokers(), pk=broker_id))
        return self.one(result, BrokerOut)


class PlacementCollection(OperatorView):
    @endpoint("list_placements", Scope.OPERATOR, page_item=PlacementOut)
    def get(self, request: Request) -> Response:
        """List the placements of instances."""
        return self.page(selectors.placements(), PlacementOut, order=("cluster_id", "instance_id"))
