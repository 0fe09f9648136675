"""REST resources of rebalances: planned and reviewed, then started, paused, resumed, undone or abandoned."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.api.base import OperatorView
from brokers.choices import DataLoss, ReassignmentState, RebalanceKind
from brokers.limits import COPY_MB_S_MAX, MOVES_PER_BROKER, MOVES_PER_BROKER_MAX
from brokers.models import PartitionReassignment, Rebalance
from brokers.rebalancing import services
from tenants.access import fetch
from tenants.api.base import API_ROOT, endpoint
from tenants.api.strict import Choice, Flag, Integer, StrictSerializer, Text
from tenants.choices import Scope
from tenants.errors import Invalid
from tenants.ids import ID_CHARS_MAX


def _copy_mb_s(**options: Any) -> Integer:
    return Integer(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=COPY_MB_S_MAX,
        help_text="What each broker may send and receive for it, in MB/s; null is no limit.",
        **options,
    )


class RebalanceIn(StrictSerializer):
    """Plan of a rebalance. `drain` and `loss` need `broker_id`, `balance` needs `cluster_id`."""

    kind = Choice(choices=RebalanceKind.values)
    cluster_id = Text(max_length=ID_CHARS_MAX, required=False)
    broker_id = Text(max_length=ID_CHARS_MAX, required=False)
    remove_broker = Flag(required=False, help_text="Stop and remove the broker once it is empty.")
    moves_at_once = Integer(
        required=False,
        min_value=1,
        max_value=MOVES_PER_BROKER_MAX,
        default=MOVES_PER_BROKER,
        help_text="Partitions that one broker receives at a time.",
    )
    copy_mb_s = _copy_mb_s(default=None)


class StartIn(StrictSerializer):
    confirm_broker = Integer(
        required=False,
        min_value=0,
        help_text="The number of the broker; needed where a lost one is removed, for there is no way back.",
    )


class RebalancePatch(StrictSerializer):
    copy_mb_s = _copy_mb_s()


class ProgressOut(serializers.Serializer):
    total = serializers.IntegerField(help_text="Moves.")
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    done = serializers.IntegerField()
    size_bytes = serializers.IntegerField(help_text="To be copied in all.")
    copied_bytes = serializers.IntegerField()
    percent = serializers.IntegerField()


class PlacementChangeOut(serializers.Serializer):
    instance_id = serializers.CharField(source="owner")
    arriving = serializers.ListField(child=serializers.IntegerField(), help_text="Brokers it gets a port on.")
    leaving = serializers.ListField(child=serializers.IntegerField(), help_text="Brokers it gives its port back on.")


class DataLossOut(serializers.Serializer):
    instance_id = serializers.CharField(allow_null=True, help_text="Null for topics of the cluster's own.")
    topic = serializers.CharField()
    partitions = serializers.ListField(child=serializers.IntegerField())
    loses = serializers.ChoiceField(
        choices=[DataLoss.SOME.value, DataLoss.ALL.value],
        help_text="`all`: they are made anew, empty. `some`: what their other replicas had not copied.",
    )


class RebalanceListOut(serializers.ListSerializer):
    """List of rebalances whose progress and losses are read at once, instead of row by row."""

    def to_representation(self, data: Any) -> list[Any]:
        rows = list(data)
        self.child.context["progresses"] = selectors.progresses_of(rows)
        selectors.prefetch_losses(rows)
        return super().to_representation(rows)


class RebalanceOut(serializers.ModelSerializer[Rebalance]):
    cluster_id = serializers.CharField()
    broker_id = serializers.CharField(allow_null=True)
    remove_broker = serializers.BooleanField(source="removes")
    waits_for = serializers.CharField(source="trouble")
    homes = PlacementChangeOut(many=True, source="placements")
    shares = serializers.DictField(help_text="`before` and `after`: broker number to replicas, leaders and bytes.")
    losses = DataLossOut(many=True, source="lost_partitions", help_text="What is lost with a lost broker, by topic.")
    progress = serializers.SerializerMethodField()

    class Meta:
        model = Rebalance
        list_serializer_class = RebalanceListOut
        fields = (
            "id", "cluster_id", "kind", "broker_id", "remove_broker", "state", "step", "waits_for", "moves_at_once",
            "copy_mb_s", "progress", "losses", "homes", "shares", "planned_by", "created_at", "started_at", "ended_at",
        )  # fmt: skip

    @extend_schema_field(ProgressOut)
    def get_progress(self, row: Rebalance) -> dict[str, int]:
        progress = self.context.get("progresses", {}).get(row.pk) or selectors.progress_of(row)
        return dict(ProgressOut(progress).data)


class ReassignmentOut(serializers.ModelSerializer[PartitionReassignment]):
    before = serializers.ListField(child=serializers.IntegerField(), help_text="Replicas; the first is to lead.")
    target = serializers.ListField(child=serializers.IntegerField())

    class Meta:
        model = PartitionReassignment
        fields = (
            "topic", "partition", "before", "target", "state", "loses", "size_bytes", "copied_bytes", "note",
            "began_at", "ended_at",
        )  # fmt: skip


class ReassignmentQuery(StrictSerializer):
    state = Choice(choices=ReassignmentState.values, required=False)


class RebalanceCollection(OperatorView):
    @endpoint("list_rebalances", Scope.OPERATOR, page_item=RebalanceOut)
    def get(self, request: Request) -> Response:
        """List rebalances, latest first."""
        return self.page(selectors.rebalances(), RebalanceOut, order=("-created_at", "id"))

    @endpoint(
        "plan_rebalance", Scope.OPERATOR, body=RebalanceIn, returns=RebalanceOut, status=201, errors=(404, 409, 503)
    )
    def post(self, request: Request) -> Response:
        """Plan to drain a broker, to remove a lost one, or to level a cluster.

        Nothing moves before the plan is started. A dry run shows the plan without storing it. A `loss` is about a
        broker that is permanently lost: nothing is copied from it, and `losses` lists data that no other broker has.
        """
        at_once = self.body["moves_at_once"]
        if self.body["kind"] == RebalanceKind.DRAIN:
            broker = fetch(selectors.brokers(), pk=self._required_id("broker_id"))
            rebalance = services.plan_drain(
                acting=self.actor,
                broker=broker,
                removes=self.body.get("remove_broker", False),
                moves_at_once=at_once,
                copy_mb_s=self.body["copy_mb_s"],
            )
        elif self.body["kind"] == RebalanceKind.LOSS:
            broker = fetch(selectors.brokers(), pk=self._required_id("broker_id"))
            rebalance = services.plan_loss(
                acting=self.actor, broker=broker, moves_at_once=at_once, copy_mb_s=self.body["copy_mb_s"]
            )
        else:
            cluster = fetch(selectors.clusters(), pk=self._required_id("cluster_id"))
            rebalance = services.plan_balance(
                acting=self.actor, cluster=cluster, moves_at_once=at_once, copy_mb_s=self.body["copy_mb_s"]
            )
        return self.one(rebalance, RebalanceOut, status=201, location=f"{API_ROOT}/operator/rebalances/{rebalance.pk}")

    def _required_id(self, field: str) -> str:
        id = str(self.body.get(field, ""))
        if not id:
            raise Invalid.at(f"/{field}", f"A {self.body['kind']} needs it.", code="required")
        return id


class RebalanceResource(OperatorView):
    @endpoint("get_rebalance", Scope.OPERATOR, returns=RebalanceOut)
    def get(self, request: Request, rebalance_id: str) -> Response:
        """Read a rebalance with its plan and progress."""
        return self.one(fetch(selectors.rebalances(), pk=rebalance_id), RebalanceOut)

    @endpoint(
        "update_rebalance",
        Scope.OPERATOR,
        body=RebalancePatch,
        returns=RebalanceOut,
        requires_if_match=True,
        errors=(404, 409),
    )
    def patch(self, request: Request, rebalance_id: str) -> Response:
        """Change the copy rate of a rebalance, also while it runs.

        A running rebalance applies it within a second, also to copies in progress.
        """
        result = fetch(selectors.rebalances(), lock=True, pk=rebalance_id)
        self.require_match(result)
        if "copy_mb_s" in self.body:
            result = services.limit_copies(acting=self.actor, rebalance=result, copy_mb_s=self.body["copy_mb_s"])
        return self.one(result, RebalanceOut)


class DrainIn(StrictSerializer):
    remove_broker = Flag(required=False, default=False, help_text="Stop and remove the broker once it is empty.")
    moves_at_once = Integer(
        required=False, min_value=1, max_value=MOVES_PER_BROKER_MAX, default=MOVES_PER_BROKER,
        help_text="Partitions that one broker receives at a time.",
    )  # fmt: skip
    copy_mb_s = _copy_mb_s(default=None)


class BrokerDrain(OperatorView):
    @endpoint("drain_broker", Scope.OPERATOR, body=DrainIn, returns=RebalanceOut, status=202, errors=(404, 409, 503))
    def post(self, request: Request, broker_id: str) -> Response:
        """Move everything off a broker, and optionally remove it afterwards.

        This plans and starts a rebalance in one call: follow, pause or undo it at `Location`. A dry run shows the plan.
        Refused if the other brokers have no room for it.
        """
        broker = fetch(selectors.brokers(), pk=broker_id)
        row = services.plan_drain(
            acting=self.actor,
            broker=broker,
            removes=self.body["remove_broker"],
            moves_at_once=self.body["moves_at_once"],
            copy_mb_s=self.body["copy_mb_s"],
        )
        if not self.dry_run:
            confirmed = broker.number if row.removes else None
            row = services.start(acting=self.actor, rebalance=row, confirmed=confirmed)
        return self.one(row, RebalanceOut, status=202, location=f"{API_ROOT}/operator/rebalances/{row.pk}")


class RebalanceReassignments(OperatorView):
    @endpoint("list_rebalance_moves", Scope.OPERATOR, query=ReassignmentQuery, page_item=ReassignmentOut)
    def get(self, request: Request, rebalance_id: str) -> Response:
        """List the moves of a rebalance."""
        rows = fetch(selectors.rebalances(), pk=rebalance_id).moves.all()
        if "state" in self.query:
            rows = rows.filter(state=self.query["state"])
        return self.page(rows, ReassignmentOut, order=("position", "id"))


class _RebalanceAction(OperatorView):
    """Action on a rebalance."""

    def act(self, rebalance_id: str, service: Any, **options: Any) -> Response:
        result = service(acting=self.actor, rebalance=fetch(selectors.rebalances(), pk=rebalance_id), **options)
        return self.one(result, RebalanceOut, status=202, location=f"{API_ROOT}/operator/rebalances/{result.pk}")


class RebalanceStart(_RebalanceAction):
    @endpoint("start_rebalance", Scope.OPERATOR, body=StartIn, returns=RebalanceOut, status=202, errors=(404, 409, 503))
    def post(self, request: Request, rebalance_id: str) -> Response:
        """Start a plan; a cluster runs one at a time.

        The removal of a lost broker must be confirmed with its number, and cannot be undone.
        """
        return self.act(rebalance_id, services.start, confirmed=self.body.get("confirm_broker"))


class RebalancePause(_RebalanceAction):
    @endpoint("pause_rebalance", Scope.OPERATOR, returns=RebalanceOut, status=202, errors=(409,))
    def post(self, request: Request, rebalance_id: str) -> Response:
        """Pause a rebalance: no further move begins; running copies are completed."""
        return self.act(rebalance_id, services.pause)


class RebalanceResume(_RebalanceAction):
    @endpoint("resume_rebalance", Scope.OPERATOR, returns=RebalanceOut, status=202, errors=(409,))
    def post(self, request: Request, rebalance_id: str) -> Response:
        """Resume a paused rebalance."""
        return self.act(rebalance_id, services.resume)


class RebalanceUndo(_RebalanceAction):
    @endpoint("undo_rebalance", Scope.OPERATOR, returns=RebalanceOut, status=202, errors=(409,))
    def post(self, request: Request, rebalance_id: str) -> Response:
        """Cancel running moves and move everything back."""
        return self.act(rebalance_id, services.undo)


class RebalanceAbandon(_RebalanceAction):
    @endpoint("abandon_rebalance", Scope.OPERATOR, returns=RebalanceOut, status=202, errors=(409,))
    def post(self, request: Request, rebalance_id: str) -> Response:
        """Abandon a rebalance: running moves are cancelled, completed moves stay.

        Use it if the rebalance, or undoing it, waits for a broker that does not come back.
        """
        return self.act(rebalance_id, services.abandon)


class RebalanceDiscard(_RebalanceAction):
    @endpoint("discard_rebalance", Scope.OPERATOR, returns=RebalanceOut, status=202, errors=(409,))
    def post(self, request: Request, rebalance_id: str) -> Response:
        """Discard a plan that was not started."""
        return self.act(rebalance_id, services.discard)
