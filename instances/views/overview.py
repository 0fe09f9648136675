"""Overview page of an instance with its live parts, and its traffic by second as JSON."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from instances import selectors
from instances.acls.selectors import allows_everyone
from instances.choices import OperationState
from instances.interfaces import Throttles
from instances.lifecycle.phases import REACHABLE, Phase
from instances.models import Instance
from instances.topics.table import topic_table
from instances.users.routes import first_route, needs_user
from instances.views.attention import fault_notices, firing_alerts_of, is_full, leaderless_of
from instances.views.common import instance_page, render_instance
from instances.views.connecting import connect_context
from instances.views.figures import figures
from instances.views.operation_steps import elapsed_s, steps_of
from instances.views.past_throttles import past_context
from instances.views.series import SPAN_MS, series
from instances.views.suspension import suspension
from instances.views.throttle_rules import Rule, ledger_rows, rules_now
from instances.views.throttle_texts import policy_text, share_reason_text
from tenants.choices import Scope
from tenants.errors import Unavailable

TOPICS_SHOWN = 6
STARTING = frozenset({Phase.REQUESTED, Phase.PROVISIONING, Phase.FAILED})


@instance_page()
@require_GET
def overview(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows gauges, live chart, throttle panel, topics and snippets; for an instance being created, its steps."""
    context: dict[str, object] = {"terms_plan": instance.plan.capitalize()}
    if instance.current_phase in STARTING:
        operation = selectors.operation_list(instance.tenant, instance_id=instance.pk).first()
        context |= (
            {"operation": operation, "steps": steps_of(operation), "elapsed_s": elapsed_s(operation)}
            if operation
            else {}
        )
        return render_instance(request, "instances/starting.html", instance, context, section="overview")
    open_operations = selectors.operation_list(instance.tenant, instance_id=instance.pk).filter(
        state__in=(OperationState.PENDING, OperationState.RUNNING)
    )
    context |= {
        "operation": open_operations.first(),
        "suspension": suspension(instance),
        "is_open": allows_everyone(instance),
        "needs": fault_notices(instance, firing_alerts_of(request.actor, instance)),  # type: ignore[attr-defined]
        **connect_context(request, instance, first_route(instance), instance),
        "signs_in": needs_user(instance),
        "is_fresh": _is_fresh(instance),
        "addresses": instance.bootstrap_servers.split(",") if instance.bootstrap_servers else [],
    }
    return render_instance(request, "instances/overview.html", instance, context, section="overview")


def _is_fresh(instance: Instance) -> bool:
    """True if no broker reports a topic of the instance, so that its next step is the first message."""
    if instance.current_phase not in REACHABLE:
        return False
    sizes = selectors.topic_sizes(instance)
    return not sizes.topics and not sizes.silent


@instance_page()
@require_GET
def traffic(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Returns the chart's points since `since_ms` (milliseconds since 1970)."""
    since = request.GET.get("since_ms", "0")
    since_ms = int(since) if since.isascii() and since.isdigit() and len(since) < 16 else 0
    first_running_ms = round((instance.first_running_at or instance.created_at).timestamp() * 1_000)
    result = selectors.traffic(instance, since_ms=since_ms)
    if not result.now_ms:
        raise Unavailable("No broker of this instance answers.")
    points, gaps, partial = series(result, since_ms=since_ms, first_running_ms=first_running_ms)
    return JsonResponse({
        "now_ms": result.now_ms,
        "from_ms": result.now_ms - SPAN_MS,
        "step_ms": result.step_ms,
        "points": points,
        "gaps": gaps,
        "partial": partial,
        "limit_bytes_per_s": instance.bandwidth_bytes_per_s,
        "silent": [broker.broker_id for broker in result.silent],
    })  # fmt: skip


@instance_page()
@require_GET
def why_part(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Renders the throttle panel, which is refreshed every two seconds."""
    ledger = selectors.throttles(instance)
    rules = _rules(instance, ledger)
    context = {
        "rules": rules,
        "active": [rule for rule in rules if rule.active],
        "silent": ledger.silent,
        "suspension": suspension(instance),
        "needs": fault_notices(instance, firing_alerts_of(request.actor, instance)),  # type: ignore[attr-defined]
        "is_full": is_full(instance),
        "leaderless": leaderless_of(instance),
    }
    return render_instance(request, "instances/why_part.html", instance, context, section="overview")


def _rules(instance: Instance, ledger: Throttles) -> list[Rule]:
    """Returns the active rules, with the brokers' current shares if bandwidth is among them."""
    waits_for_bandwidth = any(entry.kind == "instance_bandwidth" for entry in ledger.entries)
    shares = selectors.bandwidth(instance) if waits_for_bandwidth else None
    return rules_now(ledger, instance.bandwidth_bytes_per_s, shares)


@instance_page()
@require_GET
def bandwidth_part(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Renders the share, use and demand of bandwidth by broker."""
    part_by_broker = selectors.bandwidth(instance).brokers
    rows = [
        {
            "broker_id": number,
            "part": part,
            "flows": (part.produce, part.consume),
            "reason": share_reason_text(part.reason),
        }
        if part
        else {"broker_id": number, "part": None}
        for number, part in sorted(part_by_broker.items())
    ]
    context = {
        "rows": rows if any(part_by_broker.values()) else [],
        "policy": policy_text(next((part.policy for part in part_by_broker.values() if part), "")),
    }
    return render_instance(request, "instances/bandwidth_part.html", instance, context, section="overview")


@instance_page(Scope.TOPICS_READ)
@require_GET
def topics_part(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Renders the largest topics and the storage gauge, which the page loads afterwards."""
    topics = topic_table(instance).rows
    largest = sorted(topics, key=lambda topic: -(topic.size_bytes or 0))[:TOPICS_SHOWN]
    biggest = max((topic.size_bytes or 0 for topic in largest), default=0)
    context = {
        "topics": largest,
        "total": len(topics),
        "biggest": biggest,
        "partitions": sum(topic.partition_count for topic in topics),
        "figures": figures(instance),
    }
    return render_instance(request, "instances/topics_part.html", instance, context, section="overview")


@instance_page()
@require_GET
def throttle_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows the causes of throttling: current ones, those in a past span, and all since the brokers' start."""
    ledger = selectors.throttles(instance) if instance.current_phase in REACHABLE else None
    context = {
        "rules": _rules(instance, ledger) if ledger else [],
        "needs": [
            notice
            for notice in fault_notices(instance, firing_alerts_of(request.actor, instance))  # type: ignore[attr-defined]
            if any(alert.kind == "throttled_share" for alert in notice.alerts)
        ],
        "rows": ledger_rows(ledger, instance.bandwidth_bytes_per_s) if ledger else [],
        "silent": ledger.silent if ledger else [],
        "suspension": suspension(instance),
        **past_context(request.GET, instance),
    }
    return render_instance(
        request, "instances/throttle.html", instance, context, section="throttle", crumbs=[(_("Throttle"), None)]
    )
