"""The map of a cluster, and its partitions page by page."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.api.base import OperatorView
from brokers.api.views import ClusterOut
from brokers.choices import Health
from brokers.monitoring import cluster_overview
from brokers.monitoring.cluster_overview import BrokerSummary, ClusterMap
from tenants.access import fetch
from tenants.api import pages
from tenants.api.base import endpoint
from tenants.api.strict import Choice, StrictSerializer
from tenants.choices import Scope

STATES = ("all", "under_replicated", "offline", "under_min_isr", "moving")


class CountsOut(serializers.Serializer):
    topics = serializers.IntegerField()
    partitions = serializers.IntegerField()
    replicas = serializers.IntegerField()
    under_replicated = serializers.IntegerField(help_text="Partitions that miss a replica.")
    offline = serializers.IntegerField(help_text="Partitions without a leader.")
    under_min_isr = serializers.IntegerField(help_text="Partitions that refuse acks=all.")
    moving = serializers.IntegerField(help_text="Partitions whose replicas are being moved.")


class BrokerSummaryOut(serializers.Serializer):
    """A broker in the map; figures are null while nobody can tell them."""

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

    @extend_schema_field(serializers.ChoiceField(choices=Health.choices))
    def get_health(self, summary: BrokerSummary) -> str:
        return str(summary.health.value)


class ClusterMapOut(serializers.Serializer):
    cluster = serializers.SerializerMethodField()
    controller = serializers.IntegerField(help_text="Broker number; -1 = none.")
    is_checking = serializers.BooleanField(
        help_text="A broker was lost and the controller has not acted on it yet: `counts` are those of before."
    )
    counts = serializers.SerializerMethodField()
    brokers = BrokerSummaryOut(many=True)
    silent = serializers.SerializerMethodField()

    @extend_schema_field(ClusterOut)
    def get_cluster(self, found: ClusterMap) -> dict[str, Any]:
        return dict(ClusterOut(fetch(selectors.clusters(), pk=found.cluster.pk)).data)

    @extend_schema_field(serializers.ListField(child=serializers.IntegerField(), help_text="Brokers without answer."))
    def get_silent(self, found: ClusterMap) -> list[int]:
        return [item.broker_id for item in found.silent]

    @extend_schema_field(CountsOut(allow_null=True))
    def get_counts(self, found: ClusterMap) -> dict[str, int] | None:
        return dict(CountsOut(found.counts).data) if found.is_known else None


class PartitionQuery(StrictSerializer):
    state = Choice(choices=STATES, required=False)
    broker = serializers.IntegerField(
        required=False, min_value=0, help_text="Only partitions with a replica on this broker number."
    )


class ClusterPartitionOut(serializers.Serializer):
    """A partition under its internal name."""

    topic = serializers.CharField()
    partition = serializers.IntegerField()
    instance_id = serializers.CharField(allow_null=True)
    leader = serializers.IntegerField()
    leader_epoch = serializers.IntegerField()
    replicas = serializers.ListField(child=serializers.IntegerField())
    isr = serializers.ListField(child=serializers.IntegerField())
    adding = serializers.ListField(child=serializers.IntegerField())
    removing = serializers.ListField(child=serializers.IntegerField())


class ClusterResource(OperatorView):
    @endpoint("get_cluster", Scope.OPERATOR, returns=ClusterMapOut)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Read the map of a cluster: brokers, leaders, and what is missing."""
        return self.one(cluster_overview.cluster_map(fetch(selectors.clusters(), pk=cluster_id)), ClusterMapOut)


class ClusterPartitions(OperatorView):
    @endpoint("list_cluster_partitions", Scope.OPERATOR, query=PartitionQuery, page=ClusterPartitionOut, errors=(503,))
    def get(self, request: Request, cluster_id: str) -> Response:
        """List partitions by state: under-replicated, without a leader, moving."""
        cluster = fetch(selectors.clusters(), pk=cluster_id)
        asked = self._page_asked()
        after = ""
        if asked["page_token"]:
            (after,) = pages.decode_token(asked["page_token"], asked["binding"], 1)
        lines, following = cluster_overview.partition_page(
            cluster,
            state=self.query.get("state", "all"),
            broker=self.query.get("broker"),
            after=after,
            limit=asked["page_size"],
        )
        token = pages.encode_token([following], asked["binding"]) if following else None
        return self._page(lines, token, ClusterPartitionOut)
