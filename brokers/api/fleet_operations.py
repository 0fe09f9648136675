"""REST resources of operations on clusters."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.api.base import OperatorView
from brokers.choices import FleetOperationType
from brokers.models import FleetOperation
from instances.api.serializers import OperationErrorOut, StepOut
from instances.choices import OperationState
from tenants.access import fetch
from tenants.api.base import API_ROOT, endpoint
from tenants.api.strict import Choice, StrictSerializer, Text
from tenants.choices import Scope
from tenants.ids import ID_CHARS_MAX


class FleetOperationOut(serializers.ModelSerializer[FleetOperation]):
    """Long-running operation on a cluster. Poll it until `state` is succeeded or failed; in a dry run the
    ids are null.
    """

    id = serializers.CharField(allow_null=True)
    type = serializers.ChoiceField(choices=FleetOperationType.choices)
    state = serializers.ChoiceField(choices=OperationState.choices)
    cluster_id = serializers.CharField(allow_null=True)
    progress = serializers.FloatField(help_text="Share of the steps that are done, 0 to 1.")
    steps = StepOut(many=True)
    error = OperationErrorOut(allow_null=True)

    class Meta:
        model = FleetOperation
        fields = (
            "id", "type", "state", "cluster_id", "progress", "steps", "error", "asked_by", "created_at", "finished_at",
        )  # fmt: skip

    def to_representation(self, operation: FleetOperation) -> dict[str, Any]:
        document = super().to_representation(operation)
        if not getattr(self.context.get("view"), "dry_run", False):
            return document
        is_new = operation.type == FleetOperationType.FORM
        return {**document, "id": None, "cluster_id": None if is_new else operation.cluster_id}


class FleetOperationQuery(StrictSerializer):
    cluster_id = Text(required=False, max_length=ID_CHARS_MAX)
    state = Choice(required=False, choices=OperationState.values)


def accepted_response(view: OperatorView, operation: FleetOperation) -> Response:
    """Returns 202 with the address of an operation."""
    location = f"{API_ROOT}/operator/operations/{operation.pk}"
    return view.one(operation, FleetOperationOut, status=202, location=location)


class FleetOperationCollection(OperatorView):
    @endpoint("list_fleet_operations", Scope.OPERATOR, query=FleetOperationQuery, page_item=FleetOperationOut)
    def get(self, request: Request) -> Response:
        """List operations on clusters, latest first."""
        rows = selectors.fleet_operations()
        for name in ("cluster_id", "state"):
            if name in self.query:
                rows = rows.filter(**{name: self.query[name]})
        return self.page(rows, FleetOperationOut, order=("-created_at", "id"))


class FleetOperationResource(OperatorView):
    @endpoint("get_fleet_operation", Scope.OPERATOR, returns=FleetOperationOut)
    def get(self, request: Request, operation_id: str) -> Response:
        """Read an operation on a cluster."""
        return self.one(fetch(selectors.fleet_operations(), pk=operation_id), FleetOperationOut)
