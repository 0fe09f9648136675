"""REST API of an instance's traffic, throttling and events."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, selectors
from instances.interfaces import Bandwidth, BrokerBandwidth, Traffic
from instances.limits import TRAFFIC_SECONDS_MAX
from tenants.api.base import ApiView, endpoint
from tenants.api.endpoint import PageQuery
from tenants.api.strict import StrictSerializer
from tenants.choices import Scope
from tenants.errors import Unavailable

MS_PER_S = 1_000
# Default span of the list of throttled minutes.
THROTTLED_SPAN = timedelta(hours=1)


class SilentOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    reason = serializers.CharField()


class RuleOut(serializers.Serializer):
    """The rule that throttles a client."""

    kind = serializers.CharField(
        help_text="`client_quota`, `topic_quota`, `instance_bandwidth`, `request_time`, `change_rate`,"
        " `connection_rate` (new connections wait; with the quota `connection_creation_rate` an"
        " address opens more than it may), `connection_limit` (connections are refused), `authentication`"
        " (passwords are refused without a look at them, because too many were wrong), `capacity` (produces are"
        " refused: the storage that was bought is used up, or a broker's disk is nearly full, as `quota` says) or"
        " `frozen` (produces are refused)."
    )
    quota = serializers.CharField()
    level = serializers.IntegerField(
        allow_null=True, help_text="1 to 8, for a client quota; null for one that the operator's code decides."
    )
    entity = serializers.DictField(child=serializers.CharField(allow_null=True))
    unit = serializers.ChoiceField(
        choices=["bytes_per_s", "percent", "partitions_per_s"],
        allow_null=True,
        help_text="Of both limits. `percent` is of one broker's time. Null for a rule without a rate.",
    )
    limit_per_s = serializers.FloatField(
        allow_null=True, help_text="What this broker may admit: its share of the whole limit."
    )
    whole_limit_per_s = serializers.FloatField(
        allow_null=True, help_text="What was bought, or set for the client, over all brokers together."
    )
    limit_bytes_per_s = serializers.FloatField(
        allow_null=True, help_text="The same as `limit_per_s` where the unit is bytes, otherwise null."
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
    since_ms = serializers.IntegerField(help_text="When the first burst of delays began.")
    burst_since_ms = serializers.IntegerField(help_text="When the latest burst began.")
    bursts = serializers.IntegerField(help_text="Ten seconds without a delay end a burst.")
    last_ms = serializers.IntegerField()
    active = serializers.BooleanField()


class DirectionOut(serializers.Serializer):
    leaders = serializers.IntegerField(help_text="Partitions of the instance that this broker leads.")
    share_bytes_per_s = serializers.IntegerField(help_text="What this broker may admit of what was bought.")
    wanted_bytes_per_s = serializers.IntegerField(help_text="Of its clients in the last interval, delayed ones too.")
    admitted_bytes_per_s = serializers.IntegerField()


class ShareOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    produce_bytes_per_s = serializers.IntegerField()
    consume_bytes_per_s = serializers.IntegerField()
    reason = serializers.ChoiceField(
        choices=["static", "follows_demand", "layout_changed", "no_answer", "not_reported"],
        allow_null=True,
        help_text="Why its share is what it is: `static` by partitions led; `follows_demand`; `layout_changed`: by"
        " partitions led until the next interval; `no_answer`: by partitions led, because the flow master does not"
        " answer; `not_reported`: by partitions led, because nothing is wanted here. Null: this broker does not say.",
    )
    loop_used_ms = serializers.IntegerField(
        allow_null=True,
        help_text="Time of this broker's event loop that the instance was charged since its ports are open there: for"
        " requests of every kind, waits that ended, connections and sign-ins. Null: this broker does not say.",
    )
    produce = DirectionOut(allow_null=True)
    consume = DirectionOut(allow_null=True)


class FlowOut(serializers.Serializer):
    produce_bytes_per_s = serializers.IntegerField()
    consume_bytes_per_s = serializers.IntegerField()


class ThroughputOut(serializers.Serializer):
    """Bought, wanted and used bandwidth, by broker, with the throttled clients and their rules. `in_use` is of the last
    full second.
    """

    now_ms = serializers.IntegerField()
    policy = serializers.CharField(
        allow_null=True, help_text="How the bandwidth is shared out over brokers, as they say; null: none says it."
    )
    bought = FlowOut()
    in_use = FlowOut()
    wanted = FlowOut(allow_null=True, help_text="Over all brokers; null while one of them does not say.")
    admitted = FlowOut(allow_null=True, help_text="Over all brokers; null while one of them does not say.")
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


class UnknownOut(serializers.Serializer):
    broker_id = serializers.IntegerField()
    from_ms = serializers.IntegerField()
    to_ms = serializers.IntegerField()


class TrafficOut(serializers.Serializer):
    """Bytes by second. A second without a point is zero. `unknown` has the spans in which points lack the traffic of a
    broker, because it did not run or did not answer. Since `alive_since_ms` the traffic of all brokers that answered
    is known.
    """

    now_ms = serializers.IntegerField()
    step_ms = serializers.IntegerField()
    alive_since_ms = serializers.IntegerField()
    points = PointOut(many=True)
    unknown = UnknownOut(many=True)
    silent = SilentOut(many=True)


class ThrottlesQuery(PageQuery):
    """The minutes `[since, until)`, by default the last hour."""

    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)

    def validate(self, attrs: dict) -> dict:
        attrs.setdefault("until", timezone.now())
        try:
            attrs.setdefault("since", attrs["until"] - THROTTLED_SPAN)
        except OverflowError:
            raise ValidationError({"until": "There is no calendar that early."}, code="invalid_span") from None
        if attrs["since"] >= attrs["until"]:
            raise ValidationError({"since": "Must lie before `until`."}, code="invalid_span")
        return attrs


class DelayedClientOut(serializers.Serializer):
    user = serializers.CharField()
    client_id = serializers.CharField()
    count = serializers.IntegerField()
    waited_ms = serializers.IntegerField()


class CauseOut(serializers.Serializer):
    kind = serializers.CharField(help_text="As `rule.kind` of `throughput`.")
    quota = serializers.CharField()
    level = serializers.IntegerField(allow_null=True, help_text="1 to 8, for a client quota; null: several together.")
    entity = serializers.DictField(child=serializers.CharField(allow_null=True))
    unit = serializers.CharField(allow_null=True)
    whole_limit_per_s = serializers.FloatField(allow_null=True, help_text="In `unit`, over all brokers together.")
    count = serializers.IntegerField(help_text="Requests delayed, or parts of requests refused.")
    waited_ms = serializers.IntegerField(help_text="All waits together; 0 where requests are refused.")
    delay_ms_max = serializers.IntegerField()
    clients = DelayedClientOut(many=True, help_text="Those who waited longest, three at most.")


class ThrottledMinuteOut(serializers.Serializer):
    """A minute in which a broker throttled clients, with the eight heaviest causes. Names are truncated to 64
    characters.
    """

    minute = serializers.DateTimeField()
    broker_id = serializers.IntegerField(source="broker_number")
    causes = CauseOut(many=True)


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
        """Read the bought and the used bandwidth, and the throttled clients with their rules."""
        instance = access.instance(self.actor, instance_id)
        access.require_reachable(instance)
        throughput = selectors.throughput(instance)
        _require_observed(throughput.now_ms)
        bandwidth = selectors.bandwidth(instance)
        body = {
            "now_ms": throughput.now_ms,
            "policy": next((broker.policy for broker in bandwidth.brokers.values() if broker), None),
            "wanted": _sum_over_brokers(bandwidth, "wanted_bytes_per_s"),
            "admitted": _sum_over_brokers(bandwidth, "admitted_bytes_per_s"),
            "bought": {
                "produce_bytes_per_s": throughput.produce_limit_bytes_per_s,
                "consume_bytes_per_s": throughput.consume_limit_bytes_per_s,
            },
            "in_use": {
                "produce_bytes_per_s": throughput.produce_bytes_per_s,
                "consume_bytes_per_s": throughput.consume_bytes_per_s,
            },
            "by_broker": [
                _broker_body(broker, flow, bandwidth.brokers.get(broker))
                for broker, flow in sorted(throughput.by_broker.items())
            ],
            "throttling": throughput.throttles.entries,
            "silent": throughput.silent,
        }
        return self.one(body, ThroughputOut)


class Metrics(ApiView):
    tag = "Watching"

    @endpoint("get_metrics", Scope.USAGE_READ, query=TrafficQuery, returns=TrafficOut, errors=(409, 503))
    def get(self, request: Request, instance_id: str) -> Response:
        """Read bytes per second of the last quarter of an hour."""
        instance = access.instance(self.actor, instance_id)
        access.require_reachable(instance)
        traffic = selectors.traffic(instance, since_ms=self.query.get("since_ms", 0))
        _require_observed(traffic.now_ms)
        names = ("at_ms", "produce_bytes", "consume_bytes", "delay_ms_max")
        body = {
            "now_ms": traffic.now_ms,
            "step_ms": traffic.step_ms,
            "alive_since_ms": traffic.alive_since_ms,
            "points": [dict(zip(names, point, strict=True)) for point in traffic.points],
            "unknown": _unknown_spans(
                traffic, max(self.query.get("since_ms", 0), traffic.now_ms - TRAFFIC_SECONDS_MAX * MS_PER_S)
            ),
            "silent": traffic.silent,
        }
        return self.one(body, TrafficOut)


def _unknown_spans(traffic: Traffic, since_ms: int) -> list[dict[str, int]]:
    """Returns the spans since `since_ms` (ms since 1970) in which the traffic of a broker is unknown."""
    result = []
    for number, spans in sorted(traffic.known_by_broker.items()):
        from_ms = since_ms
        for start_ms, end_ms in (*spans, (traffic.now_ms, traffic.now_ms)):
            if start_ms > from_ms:
                result.append({"broker_id": number, "from_ms": from_ms, "to_ms": start_ms})
            from_ms = max(from_ms, end_ms)
    return result


def _broker_body(number: int, flow: tuple[int, int], broker: BrokerBandwidth | None) -> dict[str, object]:
    produced_bytes_per_s, consumed_bytes_per_s = flow
    return {
        "broker_id": number,
        "produce_bytes_per_s": produced_bytes_per_s,
        "consume_bytes_per_s": consumed_bytes_per_s,
        "reason": broker.reason if broker else None,
        "loop_used_ms": broker.loop_used_ms if broker else None,
        "produce": broker.produce if broker else None,
        "consume": broker.consume if broker else None,
    }


def _sum_over_brokers(bandwidth: Bandwidth, field: str) -> dict[str, int] | None:
    """Returns the sum of a field of `Flow` over all brokers, by direction; None if a broker did not report it."""
    brokers = [broker for broker in bandwidth.brokers.values() if broker is not None]
    if not bandwidth.is_known:
        return None
    return {
        "produce_bytes_per_s": sum(getattr(broker.produce, field) for broker in brokers),
        "consume_bytes_per_s": sum(getattr(broker.consume, field) for broker in brokers),
    }


class Throttles(ApiView):
    tag = "Watching"

    @endpoint("list_throttles", Scope.USAGE_READ, query=ThrottlesQuery, page_item=ThrottledMinuteOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """List the causes of throttling, minute by minute, latest first, for eight days.

        A minute has one item for each broker that throttled a client, and another one if that broker restarted within
        it. It appears some seconds after it began and is complete some seconds after its end.
        """
        instance = access.instance(self.actor, instance_id)
        rows = selectors.throttled_minutes(instance, since=self.query["since"], until=self.query["until"])
        return self.page(rows, ThrottledMinuteOut, order=("-minute", "-id"))


def _require_observed(now_ms: int) -> None:
    """Raises `Unavailable` if no broker answered: zeros would look like idle clients."""
    if not now_ms:
        raise Unavailable("No broker of this instance answers.", retry_after_s=1)


class Events(ApiView):
    tag = "Watching"

    @endpoint("list_instance_events", Scope.INSTANCES_READ, page_item=EventOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """List the events of the instance, its topics and quotas, latest first."""
        instance = access.instance(self.actor, instance_id)
        return self.page(selectors.events(instance), EventOut, order=("-time", "-id"))
