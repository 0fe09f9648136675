"""Operator pages of a cluster: map, partitions, adding a broker, rebalances and rolling restarts.

Pages are read-only; every action is a POST to a service, which redirects to a page with the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from brokers import selectors, services
from brokers.choices import FleetStep, ReassignmentState, RebalanceKind, RebalanceState
from brokers.limits import BROKER_BANDWIDTH_MB_S, BROKER_CAPACITY_MAX, BROKER_STORAGE_GB, COPY_MB_S_MAX
from brokers.models import UNDER_WAY, Cluster, FleetOperation, Rebalance, RollingRestart
from brokers.monitoring import cluster_overview, incidents
from brokers.operations import membership, rolling_restart
from brokers.rebalancing import services as rebalancing_services
from instances.choices import OperationState
from tenants.errors import DomainError
from tenants.message_field import entry
from tenants.operator import acting_operator
from tenants.views.base import signed_out_part
from tenants.wording import localized

View = Callable[..., HttpResponse]

MOVES_PER_PAGE = 50
MOVES_ON_MAP = 8
PARTITIONS_PER_PAGE = 50
AFFECTED_PER_PAGE = 50
SEARCH_CHARS_MAX = 100
SEE_INSTANCES = "instances.view_instance"
BROKER_DIGITS = 9
STATE_FILTERS = (
    ("under_replicated", gettext_lazy("Under-replicated")),
    ("offline", gettext_lazy("Without a leader")),
    ("under_min_isr", gettext_lazy("Refuse acks=all")),
    ("moving", gettext_lazy("Moving")),
    ("all", gettext_lazy("All")),
)
REBALANCE_ACTIONS: dict[str, Callable[..., Rebalance]] = {
    "start": rebalancing_services.start,
    "pause": rebalancing_services.pause,
    "resume": rebalancing_services.resume,
    "undo": rebalancing_services.undo,
    "abandon": rebalancing_services.abandon,
    "discard": rebalancing_services.discard,
}
RESTART_ACTIONS: dict[str, Callable[..., RollingRestart]] = {
    "pause": rolling_restart.pause,
    "resume": rolling_restart.resume,
    "cancel": rolling_restart.cancel,
}


class BrokerForm(forms.Form):
    host = forms.ModelChoiceField(selectors.hosts().none(), label=gettext_lazy("Host"), empty_label=None)
    rack = forms.SlugField(label=gettext_lazy("Rack"), required=False, max_length=64)
    data_dirs = forms.CharField(
        label=gettext_lazy("Data directories"), widget=forms.Textarea(attrs={"rows": 2}), required=False,
        help_text=gettext_lazy("Absolute paths, one a line. Empty: beside the other brokers of the host."),
    )  # fmt: skip
    bandwidth_mb_s = forms.IntegerField(
        label=gettext_lazy("Can sell, MB/s"), min_value=1, max_value=BROKER_CAPACITY_MAX, initial=BROKER_BANDWIDTH_MB_S
    )
    storage_gb = forms.IntegerField(
        label=gettext_lazy("Can sell, GB"), min_value=1, max_value=BROKER_CAPACITY_MAX, initial=BROKER_STORAGE_GB
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["host"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = selectors.hosts()


class PaceForm(forms.Form):
    copy_mb_s = forms.IntegerField(required=False, min_value=1, max_value=COPY_MB_S_MAX)


def page(view: View) -> View:
    """Decorates an operator page for signed-in staff that may view clusters, or change them for a POST."""

    @functools.wraps(view)
    def run(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        required_permission = "change" if request.method == "POST" else "view"
        if not request.user.has_perm(f"brokers.{required_permission}_cluster"):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    guarded = admin.site.admin_view(run)

    @functools.wraps(view)
    def part_or_page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        refused = None if admin.site.has_permission(request) else signed_out_part(request)
        return refused or guarded(request, *args, **kwargs)

    return part_or_page


def render_page(request: HttpRequest, template: str, title: str, context: dict[str, Any]) -> HttpResponse:
    """Renders a page inside the panel's frame."""
    may_act = request.user.has_perm("brokers.change_cluster")
    may_see_instances = request.user.has_perm(SEE_INSTANCES)
    values = {
        **admin.site.each_context(request),
        "title": title,
        "may_act": may_act,
        "may_see_instances": may_see_instances,
        **context,
    }
    return render(request, f"operator/{template}.html", values)


def cluster_or_404(cluster_id: str) -> Cluster:
    """Returns a cluster by id. Raises `Http404`."""
    return get_object_or_404(selectors.clusters(), pk=cluster_id)


def attempt(request: HttpRequest, action: Callable[[], Any], success_message: str) -> Any:
    """Executes an action and returns its result; None if it was refused.

    Shows the operator `success_message` or the refusal.
    """
    try:
        result = action()
    except DomainError as refusal:
        sentences = [refusal.detail or refusal.title, *(error.detail for error in refusal.errors)]
        messages.error(request, " ".join(localized(sentence) for sentence in sentences))
        return None
    if success_message:
        messages.success(request, success_message)
    return result


def nonempty_lines(text: str) -> list[str]:
    """Returns the lines of a text field that are not empty; a path may have blanks."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def refuse_fields(form: forms.Form, refusal: DomainError) -> None:
    """Shows the errors of a service at their fields."""
    for error in refusal.errors:
        parts = (error.pointer or "").lstrip("/").split("/")
        name = next((part for part in (parts[-1], parts[0]) if part in form.fields), None)
        form.add_error(name, localized(error.detail))
    if not refusal.errors:
        form.add_error(None, localized(refusal.detail or refusal.title))


# --- the map ----------------------------------------------------------------------------------------------------------


def _map_context(cluster: Cluster) -> dict[str, Any]:
    current_rebalance = selectors.rebalances().filter(cluster=cluster, state__in=UNDER_WAY).first()
    restart = selectors.rolling_restarts().filter(cluster=cluster, state__in=("running", "paused")).first()
    context: dict[str, Any] = {
        "cluster": cluster,
        "map": cluster_overview.cluster_map(cluster),
        "capacity": selectors.capacity_of(cluster),
        "instances": selectors.instances_by_broker(cluster),
        "rebalance": current_rebalance,
        "restart": restart,
    }
    operation = selectors.latest_operation(cluster)
    if operation is not None and (operation.is_open or operation.state == OperationState.FAILED):
        context["operation"] = operation
        context["steps"] = steps_of(operation)
    if current_rebalance is not None:
        context["progress"] = selectors.progress_of(current_rebalance)
        context["moves"] = current_rebalance.moves.filter(state=ReassignmentState.RUNNING).order_by("position")[
            :MOVES_ON_MAP
        ]
    if restart is not None and restart.done < len(restart.numbers):
        context["restarting"] = restart.numbers[restart.done]
    return context


def steps_of(operation: FleetOperation) -> list[dict[str, Any]]:
    """Returns the steps of an operation for the page."""
    return [
        {"label": FleetStep(step["name"]).label, "state": step["state"], "fact": entry(step, "fact")}
        for step in operation.steps
    ]


@page
@require_GET
def cluster_map(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows the map: missing replicas, load of each broker, and moves in progress."""
    cluster = cluster_or_404(cluster_id)
    template = "cluster_map_part" if request.headers.get("HX-Request") else "cluster_map"
    return render_page(request, template, _("Cluster %(name)s") % {"name": cluster.name}, _map_context(cluster))


@page
@require_GET
def cluster_partitions(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows partitions by state, one page at a time, from the view of one broker."""
    cluster = cluster_or_404(cluster_id)
    state = request.GET.get("state", "under_replicated")
    broker_number = request.GET.get("broker", "")
    after = request.GET.get("after", "")
    partitions, following = attempt(
        request,
        lambda: cluster_overview.partition_page(
            cluster,
            state=state if state in dict(STATE_FILTERS) else "all",
            broker=int(broker_number)
            if broker_number.isascii() and broker_number.isdigit() and len(broker_number) <= BROKER_DIGITS
            else None,
            after=after[:300],
            limit=PARTITIONS_PER_PAGE,
        ),
        "",
    ) or ([], "")
    context: dict[str, Any] = {
        "cluster": cluster, "state": state, "states": STATE_FILTERS, "lines": partitions, "following": following,
        "broker": broker_number, "is_first": not after,
    }  # fmt: skip
    return render_page(request, "cluster_partitions", _("Partitions"), context)


@page
@require_GET
def cluster_affected(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows every instance affected by an incident, with its tenant; for users who may view instances."""
    if not request.user.has_perm(SEE_INSTANCES):
        raise PermissionDenied
    cluster = cluster_or_404(cluster_id)
    broker_number, state = request.GET.get("broker", ""), request.GET.get("state", "")
    search = request.GET.get("q", "").strip()[:SEARCH_CHARS_MAX]
    broker = None
    if broker_number:
        number = (
            int(broker_number)
            if broker_number.isascii() and broker_number.isdigit() and len(broker_number) <= BROKER_DIGITS
            else -1
        )
        broker = get_object_or_404(selectors.brokers(), cluster=cluster, number=number)
    rows = incidents.affected_instances(cluster, broker=broker, state=state, search=search)
    context: dict[str, Any] = {
        "cluster": cluster, "broker": broker, "state": state, "words": search,
        "state_label": dict(STATE_FILTERS).get(state, ""),
        "may_see_tenants": request.user.has_perm("tenants.view_tenant"),
        "rows": Paginator(rows, AFFECTED_PER_PAGE).get_page(request.GET.get("page")),
    }  # fmt: skip
    return render_page(request, "cluster_affected", _("Instances it hits"), context)


@page
@require_http_methods(["GET", "POST"])
def broker_add(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Adds a broker process on a host."""
    cluster = cluster_or_404(cluster_id)
    form = BrokerForm(request.POST or None)
    if form.is_valid():
        values = form.cleaned_data
        values["data_dirs"] = nonempty_lines(values["data_dirs"])
        new_broker = attempt(
            request, lambda: membership.add_broker(acting=acting_operator(request), cluster=cluster, **values), ""
        )
        if new_broker is not None:
            message = _("Broker %(number)s is being started. Level all brokers to give it its share.")
            messages.success(request, message % {"number": new_broker.number})
            return redirect("admin:brokers_cluster_map", cluster.pk)
    return render_page(request, "broker_add", _("Add broker"), {"cluster": cluster, "form": form})


@page
@require_POST
def plan_balance(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Plans a rebalance that levels all brokers, for review."""
    cluster = cluster_or_404(cluster_id)
    rebalance_row = attempt(
        request, lambda: rebalancing_services.plan_balance(acting=acting_operator(request), cluster=cluster), ""
    )
    if rebalance_row is None:
        return redirect("admin:brokers_cluster_map", cluster.pk)
    return redirect("admin:brokers_rebalance_change", rebalance_row.pk)


@page
@require_POST
def plan_drain(request: HttpRequest, broker_id: str) -> HttpResponse:
    """Plans to drain a broker, or to continue without a lost one, for review."""
    broker = get_object_or_404(selectors.brokers(), pk=broker_id)
    if request.POST.get("lost") == "yes":
        rebalance_row = attempt(
            request, lambda: rebalancing_services.plan_loss(acting=acting_operator(request), broker=broker), ""
        )
    else:
        removes = request.POST.get("removes") == "yes"
        rebalance_row = attempt(
            request,
            lambda: rebalancing_services.plan_drain(acting=acting_operator(request), broker=broker, removes=removes),
            "",
        )
    if rebalance_row is None:
        return redirect("admin:brokers_cluster_map", broker.cluster_id)
    return redirect("admin:brokers_rebalance_change", rebalance_row.pk)


# --- rebalances and rolling restarts ----------------------------------------------------------------------------------


@page
@require_GET
def rebalance(request: HttpRequest, rebalance_id: str) -> HttpResponse:
    """Shows the plan with the shares before and after, and every move."""
    row = get_object_or_404(selectors.rebalances(), pk=rebalance_id)
    state = request.GET.get("state", "")
    rows = row.moves.filter(state=state) if state in ReassignmentState.values else row.moves.all()
    context = {
        "rebalance": row,
        "cluster": row.cluster,
        "progress": selectors.progress_of(row),
        "table": _before_and_after(row),
        "keeps": row.broker is not None and not row.removes and _replicas_left_on(row, row.broker.number),
        "moves": Paginator(rows.order_by("position", "id"), MOVES_PER_PAGE).get_page(request.GET.get("page")),
        "states": ReassignmentState.choices,
        "state": state,
        "is_paced": row.state == "planned" or row.is_under_way,
        "pace_max": COPY_MB_S_MAX,
        "losses": row.lost_partitions,
        "may_abandon": row.is_under_way and row.state != RebalanceState.ABANDONING,
        "may_undo": row.state in rebalancing_services.UNDOABLE
        and row.kind != RebalanceKind.LOSS
        and not (row.removes and row.step in rebalancing_services.POINTS_OF_NO_RETURN),
    }
    template = "rebalance_part" if request.headers.get("HX-Request") else "rebalance"
    return render_page(request, template, row.title, context)


def _replicas_left_on(row: Rebalance, number: int) -> int:
    """Returns the number of replicas that remain on a drained broker: those pinned to it, while it runs."""
    return int(row.shares.get("after", {}).get(str(number), {}).get("replicas", 0))


def _before_and_after(row: Rebalance) -> list[dict[str, Any]]:
    """Returns a row per broker with its replicas, leaders and bytes before and after the rebalance."""
    before, after = row.shares.get("before", {}), row.shares.get("after", {})
    no_load = {"replicas": 0, "leaders": 0, "size_bytes": 0}
    numbers = sorted({*before, *after}, key=int)
    return [
        {"number": number, "before": before.get(number, no_load), "after": after.get(number, no_load)}
        for number in numbers
    ]


@page
@require_POST
def act_on_rebalance(request: HttpRequest, rebalance_id: str, act: str) -> HttpResponse:
    """Starts, pauses, resumes, undoes, abandons or discards a rebalance. To start a removal, the operator must type the
    broker's number.
    """
    row = get_object_or_404(selectors.rebalances(), pk=rebalance_id)
    service = REBALANCE_ACTIONS.get(act)
    if service is None:
        raise PermissionDenied
    number = row.broker.number if row.broker is not None and row.removes else None
    options: dict[str, Any] = {"confirmed": number} if act == "start" else {}
    if act == "start" and request.POST.get("typed", "").strip() != ("" if number is None else str(number)):
        messages.error(request, _("Type the number of the broker that will be removed."))
    else:
        attempt(request, lambda: service(acting=acting_operator(request), rebalance=row, **options), "")
    return redirect("admin:brokers_rebalance_change", row.pk)


@page
@require_POST
def limit_copies(request: HttpRequest, rebalance_id: str) -> HttpResponse:
    """Limits the copy rate from now on; without a value it is unlimited."""
    row = get_object_or_404(selectors.rebalances(), pk=rebalance_id)
    form = PaceForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Give whole MB/s from 1 to %(most)s, or nothing.") % {"most": f"{COPY_MB_S_MAX:,}"})
    else:
        copy_mb_s = form.cleaned_data["copy_mb_s"]
        message = (
            _("Each broker copies at most %(limit)s MB/s for this.") % {"limit": f"{copy_mb_s:,}"}
            if copy_mb_s is not None
            else _("Brokers copy as fast as they can.")
        )
        attempt(
            request,
            lambda: rebalancing_services.limit_copies(
                acting=acting_operator(request), rebalance=row, copy_mb_s=copy_mb_s
            ),
            message,
        )
    return redirect("admin:brokers_rebalance_change", row.pk)


@page
@require_GET
def confirm_abandon(request: HttpRequest, rebalance_id: str) -> HttpResponse:
    """Shows the consequences of abandoning before it is done."""
    row = get_object_or_404(selectors.rebalances(), pk=rebalance_id)
    context = {"rebalance": row, "cluster": row.cluster}
    return render_page(request, "abandon", _("Abandon: %(title)s") % {"title": row.title}, context)


@page
@require_POST
def start_broker(request: HttpRequest, broker_id: str) -> HttpResponse:
    """Starts a broker that was stopped on purpose."""
    broker = get_object_or_404(selectors.brokers(), pk=broker_id)
    attempt(
        request,
        lambda: services.start_broker(acting=acting_operator(request), broker=broker),
        _("Broker %(number)s is being started.") % {"number": broker.number},
    )
    return redirect("admin:brokers_cluster_map", broker.cluster_id)


@page
@require_POST
def accept_instances(request: HttpRequest, broker_id: str) -> HttpResponse:
    """Returns an emptied broker to service."""
    broker = get_object_or_404(selectors.brokers(), pk=broker_id)
    attempt(
        request,
        lambda: services.accept_instances(acting=acting_operator(request), broker=broker),
        _("Broker %(number)s takes further instances. Level all brokers to give it its share.")
        % {"number": broker.number},
    )
    return redirect("admin:brokers_cluster_map", broker.cluster_id)


@page
@require_http_methods(["GET", "POST"])
def start_rolling_restart(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Restarts every broker, the next one when all replicas are in sync, after a confirmation page."""
    cluster = cluster_or_404(cluster_id)
    if request.method == "GET":
        numbers = selectors.running_brokers(cluster).values_list("number", flat=True)
        context = {"cluster": cluster, "numbers": list(numbers)}
        return render_page(request, "restart_confirm", _("Restart all in turn"), context)
    attempt(
        request,
        lambda: rolling_restart.start(acting=acting_operator(request), cluster=cluster),
        _("Brokers are restarted one after the other."),
    )
    return redirect("admin:brokers_cluster_map", cluster.pk)


@page
@require_POST
def act_on_restart(request: HttpRequest, restart_id: str, act: str) -> HttpResponse:
    """Pauses, resumes or cancels a rolling restart."""
    row = get_object_or_404(selectors.rolling_restarts(), pk=restart_id)
    service = RESTART_ACTIONS.get(act)
    if service is None:
        raise PermissionDenied
    attempt(request, lambda: service(acting=acting_operator(request), restart=row), "")
    return redirect("admin:brokers_cluster_map", row.cluster_id)


def cluster_urls() -> list[URLPattern]:
    """URLs below /operator/brokers/cluster/."""
    return [
        path("<str:cluster_id>/map/", cluster_map, name="brokers_cluster_map"),
        path("<str:cluster_id>/partitions/", cluster_partitions, name="brokers_cluster_partitions"),
        path("<str:cluster_id>/affected/", cluster_affected, name="brokers_cluster_affected"),
        path("<str:cluster_id>/add-broker/", broker_add, name="brokers_broker_add_to"),
        path("<str:cluster_id>/plan-balance/", plan_balance, name="brokers_plan_balance"),
        path("<str:cluster_id>/rolling-restart/", start_rolling_restart, name="brokers_rolling_restart"),
        path("start-broker/<str:broker_id>/", start_broker, name="brokers_start_broker"),
        path("accept-instances/<str:broker_id>/", accept_instances, name="brokers_accept_instances"),
        path("drain/<str:broker_id>/", plan_drain, name="brokers_plan_drain"),
        path("restart/<str:restart_id>/<str:act>/", act_on_restart, name="brokers_restart_act"),
    ]


def rebalance_urls() -> list[URLPattern]:
    """URLs below /operator/brokers/rebalance/."""
    return [
        path("<str:rebalance_id>/change/", rebalance, name="brokers_rebalance_change"),
        path("<str:rebalance_id>/abandon/", confirm_abandon, name="brokers_rebalance_abandon"),
        path("<str:rebalance_id>/pace/", limit_copies, name="brokers_rebalance_pace"),
        path("<str:rebalance_id>/act/<str:act>/", act_on_rebalance, name="brokers_rebalance_act"),
    ]
