"""What flows through an instance, who waits, and what happened to it."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, selectors
from tenants.api.base import ApiView, endpoint
from tenants.api.strict import StrictSerializer
from tenants.choices import Scope
from tenants.errors import Unavailable


class SilentOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    reason = serializers.CharField()


class RuleOut(serializers.Serializer):
    """The rule that makes a client wait."""

    kind = serializers.CharField(
        help_text="`client_quota`, `instance_bandwidth`, `request_time`, `change_rate`, `connection_rate` (new"
        " connections wait; with the quota `connection_creation_rate` an address opens more than it may),"
        " `connection_limit` (connections are refused; nothing waits) or `authentication` (passwords"
        " are refused without a look at them, because too many were wrong)."
    )
    quota = serializers.CharField()
    level = serializers.IntegerField(allow_null=True, help_text="1 to 8, for a client quota.")
    entity = serializers.DictField(child=serializers.CharField(allow_null=True))
    limit_bytes_per_s = serializers.FloatField(
        allow_null=True,
        help_text="On this broker: of `instance_bandwidth` its share of what was bought, which `bought` has whole."
        " Null for what is not counted in bytes: of `request_time` an instance may use half of a broker's.",
    )


class ThrottleOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    rule = RuleOut(source="*")
    user = serializers.CharField()
    client_id = serializers.CharField()
    count = serializers.IntegerField()
    delay_ms_mean = serializers.FloatField()
    delay_ms_p95 = serializers.FloatField()
    delay_ms_max = serializers.FloatField()
    waited_ms_total = serializers.FloatField()
    since_ms = serializers.IntegerField()
    last_ms = serializers.IntegerField()
    active = serializers.BooleanField()


class ShareOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    produce_bytes_per_s = serializers.IntegerField()
    consume_bytes_per_s = serializers.IntegerField()


class FlowOut(serializers.Serializer):
    produce_bytes_per_s = serializers.IntegerField()
    consume_bytes_per_s = serializers.IntegerField()


class ThroughputOut(serializers.Serializer):
    """Bought and in use in the last full second, by broker, and who is delayed by which rule."""

    now_ms = serializers.IntegerField()
    bought = FlowOut()
    in_use = FlowOut()
    by_broker = ShareOut(many=True)
    throttling = ThrottleOut(many=True, help_text="Longest mean delay first; `active` says whether it goes on.")
    silent = SilentOut(many=True, help_text="Brokers that did not answer: the figures are without them.")


class TrafficQuery(StrictSerializer):
    since_ms = serializers.IntegerField(
        required=False, min_value=0, max_value=2**53, help_text="Milliseconds since the epoch; at most 15 minutes back."
    )


class PointOut(serializers.Serializer):
    at_ms = serializers.IntegerField()
    produce_bytes = serializers.IntegerField()
    consume_bytes = serializers.IntegerField()
    delay_ms_max = serializers.IntegerField()


class TrafficOut(serializers.Serializer):
    """Bytes per second. A second without a point is zero after `alive_since_ms` and unknown before."""

    now_ms = serializers.IntegerField()
    step_ms = serializers.IntegerField()
    alive_since_ms = serializers.IntegerField()
    points = PointOut(many=True)
    silent = SilentOut(many=True)


class EventOut(serializers.Serializer):
    id = serializers.CharField()
    time = serializers.DateTimeField()
    action = serializers.CharField()
    target_type = serializers.CharField()
    target_id = serializers.CharField()
    actor_kind = serializers.CharField()
    actor_label = serializers.CharField()


class Throughput(ApiView):
    tag = "Watching"

    @endpoint("get_throughput", Scope.USAGE_READ, returns=ThroughputOut, errors=(409, 503))
    def get(self, request: Request, instance_id: str) -> Response:
        """What is bought, what flows, and who waits for which rule."""
        instance = access.instance(self.actor, instance_id)
        access.require_reachable(instance)
        result = selectors.throughput(instance)
        _require_observed(result.now_ms)
        shown = {
            "now_ms": result.now_ms,
            "bought": {
                "produce_bytes_per_s": result.produce_limit_bytes_per_s,
                "consume_bytes_per_s": result.consume_limit_bytes_per_s,
            },
            "in_use": {
                "produce_bytes_per_s": result.produce_bytes_per_s,
                "consume_bytes_per_s": result.consume_bytes_per_s,
            },
            "by_broker": [
                {"broker_id": broker, "produce_bytes_per_s": flow[0], "consume_bytes_per_s": flow[1]}
                for broker, flow in sorted(result.by_broker.items())
            ],
            "throttling": result.throttles.entries,
            "silent": result.silent,
        }
        return self.one(shown, ThroughputOut)


class Metrics(ApiView):
    tag = "Watching"

    @endpoint("get_metrics", Scope.USAGE_READ, query=TrafficQuery, returns=TrafficOut, errors=(409, 503))
    def get(self, request: Request, instance_id: str) -> Response:
        """Bytes per second of the last quarter of an hour."""
        instance = access.instance(self.actor, instance_id)
        access.require_reachable(instance)
        seen = selectors.traffic(instance, since_ms=self.query.get("since_ms", 0))
        _require_observed(seen.now_ms)
        names = ("at_ms", "produce_bytes", "consume_bytes", "delay_ms_max")
        shown = {
            "now_ms": seen.now_ms,
            "step_ms": seen.step_ms,
            "alive_since_ms": seen.alive_since_ms,
            "points": [dict(zip(names, point, strict=True)) for point in seen.points],
            "silent": seen.silent,
        }
        return self.one(shown, TrafficOut)


def _require_observed(now_ms: int) -> None:
    """Raise `Unavailable` where no broker said anything: zeros would look like silence of the clients."""
    if not now_ms:
        raise Unavailable("No broker of this instance answers.", retry_after_s=1)


class Events(ApiView):
    tag = "Watching"

    @endpoint("list_instance_events", Scope.INSTANCES_READ, page=EventOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """What happened to the instance, its topics and quotas, latest first."""
        instance = access.instance(self.actor, instance_id)
        return self.page(selectors.events(instance), EventOut, order=("-time", "-id"))
