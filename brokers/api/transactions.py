"""REST resources of hanging transactions: those beyond their timeout, those unknown to coordinators, and
aborting them.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.api.base import OperatorView
from brokers.transactions import hanging
from tenants.access import fetch
from tenants.api.base import endpoint
from tenants.api.strict import Integer, StrictSerializer, Text
from tenants.choices import Scope
from tenants.errors import Invalid

NAME_CHARS_MAX = 1_000
AFTER_CHARS_MAX = 300
NUMBER_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1


class PlaceOut(serializers.Serializer):
    """Partition with its internal name."""

    topic = serializers.CharField()
    partition = serializers.IntegerField()


class OverdueOut(serializers.Serializer):
    """Transaction that is open longer than its timeout."""

    id = serializers.CharField(help_text="Internal transactional id.")
    instance_id = serializers.CharField(allow_null=True)
    state = serializers.CharField()
    is_decided = serializers.BooleanField(help_text="Committed or aborted already; a marker is missing.")
    producer_id = serializers.IntegerField()
    producer_epoch = serializers.IntegerField()
    timeout_ms = serializers.IntegerField()
    age_ms = serializers.IntegerField()
    partitions = serializers.SerializerMethodField()

    def get_partitions(self, row: hanging.OverdueTransaction) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": index} for topic, index in row.partitions]


class OrphanOut(PlaceOut):
    """Open transaction on a partition that no coordinator knows."""

    topic = serializers.CharField(source="producer.topic")
    partition = serializers.IntegerField(source="producer.partition")
    instance_id = serializers.CharField(allow_null=True)
    producer_id = serializers.IntegerField(source="producer.producer_id")
    producer_epoch = serializers.IntegerField(source="producer.producer_epoch")
    first_offset = serializers.IntegerField(source="producer.transaction_start_offset")
    silent_ms = serializers.IntegerField(help_text="Since its last message.")


class SilentCoordinatorOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    reason = serializers.CharField()


class OverdueListOut(serializers.Serializer):
    items = OverdueOut(many=True, source="rows")
    silent = SilentCoordinatorOut(many=True, help_text="Brokers whose transactions are missing here.")


class ScanQuery(StrictSerializer):
    after = Text(required=False, max_length=AFTER_CHARS_MAX, help_text="`next` of the part before.")


class ScanOut(serializers.Serializer):
    """Result of scanning a part of the cluster's partitions."""

    items = OrphanOut(many=True, source="rows")
    looked_at = serializers.IntegerField(help_text="Partitions.")
    unanswered = serializers.IntegerField(help_text="Partitions whose leader did not answer.")
    next = serializers.SerializerMethodField(help_text="Where the next part begins; null at the end.")
    silent = SilentCoordinatorOut(
        many=True, help_text="Coordinators that did not answer: then nothing is said to hang."
    )

    def get_next(self, scan: hanging.OrphanScan) -> str | None:
        return scan.following or None


class AbortIn(StrictSerializer):
    """Transaction to abort: either `id` (beyond its timeout) or partition, producer and first offset (unknown to
    coordinators).
    """

    id = Text(required=False, max_length=NAME_CHARS_MAX)
    topic = Text(required=False, max_length=AFTER_CHARS_MAX)
    partition = Integer(required=False, min_value=0, max_value=PARTITION_MAX)
    producer_id = Integer(required=False, min_value=0, max_value=NUMBER_MAX)
    first_offset = Integer(required=False, min_value=0, max_value=NUMBER_MAX)


class OverdueTransactions(OperatorView):
    @endpoint("list_overdue_transactions", Scope.OPERATOR, returns=OverdueListOut, errors=(503,))
    def get(self, request: Request, cluster_id: str) -> Response:
        """List transactions that are open longer than their timeout, oldest first."""
        return self.one(hanging.list_overdue(fetch(selectors.clusters(), pk=cluster_id)), OverdueListOut)


class OrphanTransactions(OperatorView):
    @endpoint("list_orphan_transactions", Scope.OPERATOR, query=ScanQuery, returns=ScanOut, errors=(503,))
    def get(self, request: Request, cluster_id: str) -> Response:
        """Scan partitions for transactions unknown to coordinators, a part at a time."""
        cluster = fetch(selectors.clusters(), pk=cluster_id)
        return self.one(hanging.scan_orphans(cluster, after=self.query.get("after", "")), ScanOut)


class TransactionAbort(OperatorView):
    @endpoint("abort_transaction", Scope.OPERATOR, body=AbortIn, status=204, errors=(409, 503))
    def post(self, request: Request, cluster_id: str) -> Response:
        """Abort a hanging transaction.

        With `id`, its producer is fenced and its coordinator aborts it. With a partition, an ABORT marker is written
        into that partition only. Transactions that do not hang are refused.
        """
        cluster = fetch(selectors.clusters(), pk=cluster_id)
        partition_fields = {name: self.body.get(name) for name in ("topic", "partition", "producer_id", "first_offset")}
        if "id" in self.body:
            for name in partition_fields:
                if name in self.body:
                    raise Invalid.at(f"/{name}", "With `id` nothing else is given.", code="not_taken")
            hanging.abort_overdue(
                acting=self.actor, cluster=cluster, transactional_id=self.body["id"], dry_run=self.dry_run
            )
            return self.nothing()
        for name, value in partition_fields.items():
            if value is None:
                raise Invalid.at(f"/{name}", "Give this or `id`.", code="needed")
        hanging.abort_orphan(
            acting=self.actor,
            cluster=cluster,
            topic=partition_fields["topic"],
            partition=partition_fields["partition"],
            producer_id=partition_fields["producer_id"],
            transaction_start_offset=partition_fields["first_offset"],
            dry_run=self.dry_run,
        )
        return self.nothing()
