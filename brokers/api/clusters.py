"""REST resources of clusters: forming, changing and retiring clusters, their map and their partitions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.api.base import OperatorView
from brokers.api.fleet_operations import FleetOperationOut, accepted_response
from brokers.api.views import ClusterOut
from brokers.choices import ClusterBackend, ClusterKind, Health, SaslMechanism, SecurityProtocol
from brokers.limits import (
    BROKERS_PER_CLUSTER_MAX,
    CLUSTER_CAPACITY_MAX,
    CLUSTER_NAME_CHARS_MAX,
    CLUSTER_PARTITIONS_MAX,
    ZONE_CHARS_MAX,
    ZONES_PER_CLUSTER_MAX,
)
from brokers.monitoring import cluster_overview
from brokers.monitoring.cluster_overview import BrokerSummary, ClusterMap
from brokers.operations import clusters, kafka_clusters
from tenants.access import fetch
from tenants.api import pages
from tenants.api.base import endpoint
from tenants.api.strict import Choice, Flag, Integer, StrictSerializer, Text
from tenants.choices import Scope
from tenants.errors import Invalid
from tenants.ids import ID_CHARS_MAX

STATES = ("all", "under_replicated", "offline", "under_min_isr", "moving")


class CountsOut(serializers.Serializer):
    topics = serializers.IntegerField()
    partitions = serializers.IntegerField()
    replicas = serializers.IntegerField()
    under_replicated = serializers.IntegerField(help_text="Partitions with a replica out of sync.")
    offline = serializers.IntegerField(help_text="Partitions without a leader.")
    under_min_isr = serializers.IntegerField(help_text="Partitions that refuse acks=all.")
    moving = serializers.IntegerField(help_text="Partitions whose replicas are being moved.")


class BrokerSummaryOut(serializers.Serializer):
    """Broker in the map; figures are null while they are unknown."""

    id = serializers.CharField(source="row.pk")
    number = serializers.IntegerField()
    host = serializers.CharField(source="row.host.name")
    rack = serializers.CharField(source="row.effective_rack")
    health = serializers.SerializerMethodField()
    is_controller = serializers.BooleanField()
    is_live = serializers.BooleanField()
    is_draining = serializers.BooleanField()
    leaders = serializers.IntegerField(allow_null=True)
    preferred = serializers.IntegerField(allow_null=True, help_text="Partitions it should lead.")
    replicas = serializers.IntegerField(allow_null=True)
    out_of_sync = serializers.IntegerField(allow_null=True, help_text="Replicas here that are not in sync.")
    version = serializers.CharField(
        allow_blank=True, help_text='Version of Penstock that it runs; "" if it is not live or does not say it.'
    )

    @extend_schema_field(serializers.ChoiceField(choices=Health.choices))
    def get_health(self, summary: BrokerSummary) -> str:
        return str(summary.health.value)


class ClusterMapOut(serializers.Serializer):
    cluster = serializers.SerializerMethodField()
    controller = serializers.IntegerField(help_text="Broker number; -1 = none.")
    is_checking = serializers.BooleanField(
        help_text="A broker was lost and the controller has not reacted yet: `counts` are outdated."
    )
    counts = serializers.SerializerMethodField()
    brokers = BrokerSummaryOut(many=True)
    silent = serializers.SerializerMethodField()

    @extend_schema_field(ClusterOut)
    def get_cluster(self, cluster_map: ClusterMap) -> dict[str, Any]:
        return dict(ClusterOut(fetch(selectors.clusters(), pk=cluster_map.cluster.pk)).data)

    @extend_schema_field(serializers.ListField(child=serializers.IntegerField(), help_text="Brokers without answer."))
    def get_silent(self, cluster_map: ClusterMap) -> list[int]:
        return [broker.broker_id for broker in cluster_map.silent]

    @extend_schema_field(CountsOut(allow_null=True))
    def get_counts(self, cluster_map: ClusterMap) -> dict[str, int] | None:
        return dict(CountsOut(cluster_map.counts).data) if cluster_map.is_known else None


class PartitionQuery(StrictSerializer):
    state = Choice(choices=STATES, required=False)
    broker = serializers.IntegerField(
        required=False, min_value=0, help_text="Only partitions with a replica on this broker number."
    )


class ClusterPartitionOut(serializers.Serializer):
    """Partition with its internal name."""

    topic = serializers.CharField()
    partition = serializers.IntegerField()
    instance_id = serializers.CharField(allow_null=True)
    leader = serializers.IntegerField()
    leader_epoch = serializers.IntegerField()
    replicas = serializers.ListField(child=serializers.IntegerField())
    isr = serializers.ListField(child=serializers.IntegerField())
    adding = serializers.ListField(child=serializers.IntegerField())
    removing = serializers.ListField(child=serializers.IntegerField())


def _zones(**options: Any) -> serializers.ListField:
    return serializers.ListField(
        child=Text(max_length=ZONE_CHARS_MAX),
        max_length=ZONES_PER_CLUSTER_MAX,
        required=False,
        help_text="Zones of hosts that its brokers may be on; empty = all.",
        **options,
    )


class _ClusterFields(StrictSerializer):
    zones = _zones()
    brokers_per_instance_min = Integer(
        required=False,
        min_value=1,
        max_value=BROKERS_PER_CLUSTER_MAX,
        help_text="An instance lives on at least so many brokers, where the cluster has them.",
    )
    max_partitions = Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=CLUSTER_PARTITIONS_MAX,
        help_text="What all its instances together may have; null is no limit.",
    )
    max_bandwidth_mb_s = Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=CLUSTER_CAPACITY_MAX,
        help_text="What all its instances together may have bought; null is what its brokers may sell.",
    )
    max_storage_gb = Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=CLUSTER_CAPACITY_MAX,
        help_text="What all its instances together may have bought; null is what its brokers may sell.",
    )
    accepts_instances = Flag(required=False, help_text="Whether further instances are placed on it.")
    tenant_ids = serializers.ListField(
        child=Text(max_length=ID_CHARS_MAX),
        required=False,
        max_length=clusters.CLUSTER_TENANTS_MAX,
        help_text="Tenants whose instances it takes before other clusters, and takes alone; empty = all.",
    )


class BackendIn(StrictSerializer):
    """Backend of a cluster. All other fields are for `kafka`, and are probed before anything is written."""

    type = Choice(choices=ClusterBackend.values)
    bootstrap_servers = Text(
        max_length=kafka_clusters.SERVERS_CHARS_MAX, required=False, help_text="host:port, with commas between."
    )
    security_protocol = Choice(choices=SecurityProtocol.values, required=False, help_text="Default: PLAINTEXT.")
    sasl_mechanism = Choice(choices=SaslMechanism.values, required=False, help_text="Default: PLAIN.")
    username = Text(max_length=kafka_clusters.LOGIN_CHARS_MAX, required=False)
    password = Text(
        max_length=kafka_clusters.LOGIN_CHARS_MAX, required=False, help_text="Stored encrypted, never shown again."
    )
    ca_pem = Text(
        max_length=kafka_clusters.PEM_CHARS_MAX,
        required=False,
        help_text="Authorities of the upstream's certificates; without it those of the gateway's machine.",
    )
    client_certificate = Text(
        max_length=kafka_clusters.PEM_CHARS_MAX,
        required=False,
        help_text="PEM of a key without a password and its certificate chain. Stored encrypted, never shown again.",
    )


class ClusterIn(_ClusterFields):
    name = Text(max_length=CLUSTER_NAME_CHARS_MAX)
    kind = Choice(choices=ClusterKind.values, help_text="`dedicated`: one instance of that type has it for itself.")
    host_ids = serializers.ListField(
        child=Text(max_length=ID_CHARS_MAX),
        required=False,
        max_length=BROKERS_PER_CLUSTER_MAX,
        help_text="One broker on each; a host named twice gets two. Without any, add brokers later. On a Kafka cluster "
        "the gateways of all upstream brokers are on these hosts in turn.",
    )
    backend = BackendIn(required=False, help_text="Default: Penstock's own brokers.")


class ClusterPatch(_ClusterFields):
    name = Text(max_length=CLUSTER_NAME_CHARS_MAX, required=False)
    backend = BackendIn(
        required=False,
        help_text="Of a Kafka cluster only, with all its fields: what is left out is not kept. Gateways use it from "
        "their next start on (`start_rolling_restart`).",
    )


class ClusterCollection(OperatorView):
    @endpoint("list_clusters", Scope.OPERATOR, page_item=ClusterOut)
    def get(self, request: Request) -> Response:
        """List clusters, except retired ones."""
        return self.page(selectors.clusters(), ClusterOut, order=("name", "id"))

    @endpoint("add_cluster", Scope.OPERATOR, body=ClusterIn, returns=FleetOperationOut, status=202, errors=(404, 409))
    def post(self, request: Request) -> Response:
        """Form a cluster.

        It is `forming` until its brokers answer and have elected a controller; follow the operation at `Location`. From
        then on instances are placed on it. A dry run returns the brokers that it would have, with their hosts.

        With a backend of type `kafka` its brokers are gateways in front of that Kafka. It is probed first, for some
        seconds at most; a refusal says whether it cannot be reached, does not accept the login, has a certificate of
        an unknown authority, or is too old.
        """
        body = dict(self.body)
        upstream = kafka_clusters.probe_backend(self.actor, body.pop("backend", None))
        host_ids = body.pop("host_ids", [])
        hosts_by_id = {host.pk: host for host in selectors.hosts().filter(pk__in=set(host_ids))}
        for index, host_id in enumerate(host_ids):
            if host_id not in hosts_by_id:
                raise Invalid.at(f"/host_ids/{index}", "There is no such host.", code="not_found")
        operation = clusters.add_cluster(
            acting=self.actor,
            hosts=[hosts_by_id[host_id] for host_id in host_ids],
            upstream=upstream,
            dry_run=self.dry_run,
            **body,
        )
        return accepted_response(self, operation)


class ClusterResource(OperatorView):
    @endpoint("get_cluster", Scope.OPERATOR, returns=ClusterMapOut)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Read the map of a cluster: brokers, leaders, and missing replicas."""
        return self.one(cluster_overview.cluster_map(fetch(selectors.clusters(), pk=cluster_id)), ClusterMapOut)

    @endpoint(
        "change_cluster",
        Scope.OPERATOR,
        body=ClusterPatch,
        returns=ClusterOut,
        requires_if_match=True,
        errors=(404, 409),
    )
    def patch(self, request: Request, cluster_id: str) -> Response:
        """Rename a cluster, set whether it accepts instances, or change its bounds.

        Instances that are placed on it are not moved.
        """
        changes = dict(self.body)
        # Probed before the row is locked.
        upstream = kafka_clusters.probe_backend(self.actor, changes.pop("backend", None))
        row = fetch(selectors.active_clusters(), lock=True, pk=cluster_id)
        self.require_match(row)
        if "backend" in self.body:
            kafka_clusters.change_backend(acting=self.actor, cluster=row, probed=upstream)
        clusters.change_cluster(acting=self.actor, cluster=row, changes=changes)
        return self.one(fetch(selectors.clusters(), pk=cluster_id), ClusterOut)

    @endpoint(
        "retire_cluster",
        Scope.OPERATOR,
        returns=FleetOperationOut,
        status=202,
        requires_if_match=True,
        errors=(404, 409),
    )
    def delete(self, request: Request, cluster_id: str) -> Response:
        """Retire a cluster that has no instances; this cannot be undone.

        Usage and audit are read to the end, then its brokers stop and are removed, and its documents are deleted.
        Follow the operation at `Location`.
        """
        row = fetch(selectors.active_clusters(), lock=True, pk=cluster_id)
        self.require_match(row)
        return accepted_response(self, clusters.retire_cluster(acting=self.actor, cluster=row, dry_run=self.dry_run))


class ClusterPartitions(OperatorView):
    @endpoint(
        "list_cluster_partitions", Scope.OPERATOR, query=PartitionQuery, page_item=ClusterPartitionOut, errors=(503,)
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """List partitions by state: under-replicated, without a leader, moving."""
        cluster = fetch(selectors.clusters(), pk=cluster_id)
        page_request = self._page_parameters()
        after = ""
        if page_request["page_token"]:
            (after,) = pages.decode_token(page_request["page_token"], page_request["binding"], 1)
        partitions, following = cluster_overview.partition_page(
            cluster,
            state=self.query.get("state", "all"),
            broker=self.query.get("broker"),
            after=after,
            limit=page_request["page_size"],
        )
        token = pages.encode_token([following], page_request["binding"]) if following else None
        return self._page(partitions, token, ClusterPartitionOut)
