"""REST resources of rolling restarts, which restart brokers one by one, each when all replicas are in sync."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.api.base import OperatorView
from brokers.models import RollingRestart
from brokers.operations import rolling_restart
from tenants.access import fetch
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.api.strict import StrictSerializer, Text
from tenants.choices import Scope
from tenants.ids import ID_CHARS_MAX


class RollingRestartIn(StrictSerializer):
    cluster_id = Text(max_length=ID_CHARS_MAX)


class RollingRestartOut(serializers.ModelSerializer[RollingRestart]):
    cluster_id = serializers.CharField()
    brokers = serializers.ListField(child=serializers.IntegerField(), source="numbers", help_text="In their order.")
    done = serializers.IntegerField(help_text="How many of them are back.")
    waits_for = serializers.CharField(source="trouble")

    class Meta:
        model = RollingRestart
        fields = ("id", "cluster_id", "state", "brokers", "done", "waits_for", "asked_by", "created_at", "ended_at")


class RollingRestartCollection(OperatorView):
    @endpoint("list_rolling_restarts", Scope.OPERATOR, page_item=RollingRestartOut)
    def get(self, request: Request) -> Response:
        """List rolling restarts, latest first."""
        return self.page(selectors.rolling_restarts(), RollingRestartOut, order=("-created_at", "id"))

    @endpoint(
        "start_rolling_restart",
        Scope.OPERATOR,
        body=RollingRestartIn,
        returns=RollingRestartOut,
        status=202,
        errors=(404, 409),
    )
    def post(self, request: Request) -> Response:
        """Restart all brokers of a cluster, the next one when all replicas are in sync again."""
        cluster = fetch(selectors.clusters(), pk=self.body["cluster_id"])
        return _accepted(self, rolling_restart.start(acting=self.actor, cluster=cluster))


class RollingRestartResource(OperatorView):
    @endpoint("get_rolling_restart", Scope.OPERATOR, returns=RollingRestartOut)
    def get(self, request: Request, restart_id: str) -> Response:
        """Read a rolling restart with the current broker and what it waits for."""
        return self.one(fetch(selectors.rolling_restarts(), pk=restart_id), RollingRestartOut)


class _RestartAction(OperatorView):
    def act(self, restart_id: str, service: Any) -> Response:
        return _accepted(self, service(acting=self.actor, restart=fetch(selectors.rolling_restarts(), pk=restart_id)))


class RollingRestartPause(_RestartAction):
    @endpoint("pause_rolling_restart", Scope.OPERATOR, returns=RollingRestartOut, status=202, errors=(409,))
    def post(self, request: Request, restart_id: str) -> Response:
        """Pause a rolling restart: no further broker is stopped."""
        return self.act(restart_id, rolling_restart.pause)


class RollingRestartResume(_RestartAction):
    @endpoint("resume_rolling_restart", Scope.OPERATOR, returns=RollingRestartOut, status=202, errors=(409,))
    def post(self, request: Request, restart_id: str) -> Response:
        """Resume a paused rolling restart."""
        return self.act(restart_id, rolling_restart.resume)


class RollingRestartCancel(_RestartAction):
    @endpoint("cancel_rolling_restart", Scope.OPERATOR, returns=RollingRestartOut, status=202, errors=(409,))
    def post(self, request: Request, restart_id: str) -> Response:
        """Cancel a rolling restart; a restarting broker comes back by itself."""
        return self.act(restart_id, rolling_restart.cancel)


def _accepted(view: ApiView, restart: RollingRestart) -> Response:
    location = f"{API_ROOT}/operator/rolling_restarts/{restart.pk}"
    return view.one(restart, RollingRestartOut, status=202, location=location)
