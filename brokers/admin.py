"""Fleet in the operator panel: clusters, hosts, brokers with their health, and placements of instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from brokers import selectors, services
from brokers.admin_views import cluster_panel, host_panel, panel, settings_panel, transaction_panel
from brokers.agent.check_rules import has_failed
from brokers.choices import ClusterState, Health, RebalanceState
from brokers.models import Broker, Cluster, FleetOperation, Host, Placement, PortLease, Rebalance, RollingRestart
from brokers.monitoring import broker_log
from brokers.monitoring.health import modules_of, offline_directories, upstream_lost_since
from instances.choices import OperationState
from tenants.actors import Actor
from tenants.formatting import clock
from tenants.operator import OperatorAdmin, operator_action

admin.site.index_template = "operator/index.html"

HEALTH_COLOURS = {
    Health.HEALTHY.label: "success",
    Health.STARTING.label: "info",
    Health.LATE.label: "warning",
    Health.DISK_OFFLINE.label: "danger",
    Health.UPSTREAM_LOST.label: "danger",
    Health.DOWN.label: "danger",
}


STATE_COLOURS = {
    RebalanceState.PLANNED.label: "info",
    RebalanceState.RUNNING.label: "info",
    RebalanceState.UNDOING.label: "info",
    RebalanceState.PAUSED.label: "warning",
    RebalanceState.DONE.label: "success",
}

REASONS_LISTED = 3
CLUSTER_COLOURS = {
    ClusterState.FORMING.label: "info",
    ClusterState.READY.label: "success",
    ClusterState.RETIRING.label: "warning",
}
OPERATION_COLOURS = {
    OperationState.PENDING.label: "info",
    OperationState.RUNNING.label: "info",
    OperationState.SUCCEEDED.label: "success",
    OperationState.FAILED.label: "danger",
}


def with_figures(base: type[ChangeList], figures_of: Callable[[Sequence[Any]], Mapping[str, Any]]) -> type[ChangeList]:
    """Returns a subclass of a change list that reads the `figures` of all rows of a page at once, not row by row."""

    class WithFigures(base):  # type: ignore[misc,valid-type]
        def get_results(self, request: HttpRequest) -> None:
            super().get_results(request)
            self.result_list = list(self.result_list)
            figures = figures_of(self.result_list)
            for row in self.result_list:
                row.figures = figures[row.pk]

    return WithFigures


@admin.register(Cluster)
class ClusterAdmin(OperatorAdmin):
    when_empty = _("manage.py up makes the first cluster, with its host and its brokers.")
    symbol = "hub"
    list_display = (
        "name",
        "map",
        "coloured_state",
        "transactions",
        "kind",
        "accepts_instances",
        "sold_bandwidth",
        "sold_storage",
        "instances",
    )
    exclude = ("control_secret_file",)

    def get_urls(self) -> list[URLPattern]:
        return [
            *cluster_panel.urls(), *panel.cluster_urls(), *settings_panel.urls(), *transaction_panel.urls(),
            *super().get_urls(),
        ]  # fmt: skip

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("brokers.change_cluster"))

    def get_queryset(self, request: HttpRequest) -> Any:
        return selectors.clusters()

    @display(description=_("state"), label=CLUSTER_COLOURS)
    def coloured_state(self, cluster: Cluster) -> str:
        return str(cluster.get_state_display())

    @admin.display(description=_("map"))
    def map(self, cluster: Cluster) -> SafeString:
        address = reverse("admin:brokers_cluster_map", args=[cluster.pk])
        return format_html('<a href="{}">{}</a>', address, _("Brokers, leaders, moves"))

    @admin.display(description=_("transactions"))
    def transactions(self, cluster: Cluster) -> SafeString:
        address = reverse("admin:brokers_transactions", args=[cluster.pk])
        return format_html('<a href="{}">{}</a>', address, _("Those that hang"))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return with_figures(super().get_changelist(request, **kwargs), selectors.capacities_of)

    @admin.display(description=_("sold bandwidth"))
    def sold_bandwidth(self, cluster: Any) -> str:
        capacity = cluster.figures
        return f"{capacity.sold_bandwidth_mb_s:,} / {capacity.bandwidth_mb_s:,} MB/s"

    @admin.display(description=_("sold storage"))
    def sold_storage(self, cluster: Any) -> str:
        capacity = cluster.figures
        return f"{capacity.sold_storage_gb:,} / {capacity.storage_gb:,} GB"

    @admin.display(description=_("instances"))
    def instances(self, cluster: Any) -> int:
        return int(cluster.figures.instances)


@admin.register(Host)
class HostAdmin(OperatorAdmin):
    when_empty = _("Machines that run brokers. Add one, and run its agent there.")
    symbol = "dns"
    list_display = (
        "name",
        "zone",
        "agent",
        "brokers_here",
        "advertised_host",
        "port_first",
        "port_last",
        "agent_seen_at",
    )

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("brokers.change_cluster"))

    def get_queryset(self, request: HttpRequest) -> Any:
        return selectors.hosts()

    def get_urls(self) -> list[URLPattern]:
        return [*host_panel.urls(), *super().get_urls()]

    @display(
        description=_("agent"),
        label={
            _("Runs"): "success", _("Check failed"): "danger", _("Silent"): "danger", _("Not seen yet"): "warning",
        },
    )  # fmt: skip
    def agent(self, host: Host) -> str:
        if selectors.agent_is_alive(host):
            return str(_("Check failed") if has_failed(host.checks) else _("Runs"))
        return str(_("Silent") if host.agent_seen_at else _("Not seen yet"))

    @admin.display(description=_("brokers"))
    def brokers_here(self, host: Any) -> int:
        return int(host.broker_count)


@admin.register(Broker)
class BrokerAdmin(OperatorAdmin):
    when_empty = _("Brokers are added on their cluster's map.")
    symbol = "memory"
    list_display = (
        "number",
        "cluster",
        "host",
        "rack",
        "health",
        "wanted",
        "process_state",
        "process_restarts",
        "load",
    )
    readonly_fields = ("offline_disks", "upstream_lost", "modules", "log")
    list_filter = ("cluster", "wanted", "process_state")
    list_select_related = ("cluster", "host")
    actions = ("restart",)

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(removed_at=None)

    @display(description=_("health"), label=HEALTH_COLOURS)
    def health(self, broker: Broker) -> str:
        return str(selectors.health_of(broker).label)

    @admin.display(description=_("disks offline"))
    def offline_disks(self, broker: Broker) -> str:
        lines = [f"{path}: {reason}" for path, reason in offline_directories(broker).items()]
        return "; ".join(lines) or "—"

    @admin.display(description=_("upstream lost since"))
    def upstream_lost(self, broker: Broker) -> str:
        since = upstream_lost_since(broker)
        return "—" if since is None else clock(since)

    @admin.display(description=_("modules"))
    def modules(self, broker: Broker) -> str:
        return modules_of(broker) or "—"

    @admin.display(description=_("last lines of its log"))
    def log(self, broker: Broker) -> SafeString | str:
        lines = broker_log.last_lines(broker)
        if lines is None:
            path = {"host": broker.host.name, "file": "/".join(broker_log.log_file_of(broker).parts[-4:])}
            return _("It is not on this machine. On host %(host)s it is %(file)s in the state directory.") % path
        return format_html("<pre>{}</pre>", "\n".join(lines)) if lines else "—"

    @admin.display(description=_("leaders, connections"))
    def load(self, broker: Broker) -> str:
        status = broker.observed or {}
        return f"{status.get('leaders', '—')}, {status.get('connections', '—')}"

    @operator_action(_("Restart (one at a time)"))
    def restart(self, acting: Actor, broker: Broker) -> Any:
        services.restart_broker(acting=acting, broker=broker)
        return _("is being restarted")


@admin.register(Rebalance)
class RebalanceAdmin(OperatorAdmin):
    when_empty = _("Rebalances are planned on a cluster's map: after a broker was added, or to empty one.")
    symbol = "swap_horiz"
    list_display = ("id", "cluster", "kind", "broker", "coloured_state", "moves_done", "planned_by", "created_at")
    list_filter = ("cluster", "kind", "state")
    list_select_related = ("cluster", "broker")

    def get_urls(self) -> list[URLPattern]:
        return [*panel.rebalance_urls(), *super().get_urls()]

    @display(description=_("state"), label=STATE_COLOURS)
    def coloured_state(self, row: Rebalance) -> str:
        return str(row.get_state_display())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return with_figures(super().get_changelist(request, **kwargs), selectors.progresses_of)

    @admin.display(description=_("moves done"))
    def moves_done(self, row: Any) -> str:
        progress = row.figures
        return f"{progress.done:,} / {progress.total:,}"


@admin.register(RollingRestart)
class RollingRestartAdmin(OperatorAdmin):
    when_empty = _("Rolling restarts are begun on a cluster's map, and stand here with how far they are.")
    symbol = "restart_alt"
    list_display = ("id", "cluster", "coloured_state", "brokers_done", "trouble", "asked_by", "created_at", "ended_at")
    list_filter = ("cluster", "state")
    list_select_related = ("cluster",)

    @display(description=_("state"), label=STATE_COLOURS)
    def coloured_state(self, row: RollingRestart) -> str:
        return str(row.get_state_display())

    @admin.display(description=_("brokers done"))
    def brokers_done(self, row: RollingRestart) -> str:
        return f"{row.done} / {len(row.numbers)}"


@admin.register(FleetOperation)
class FleetOperationAdmin(OperatorAdmin):
    when_empty = _("Clusters that are formed and retired stand here, with how far they are.")
    symbol = "playlist_add_check"
    list_display = ("id", "cluster", "type", "coloured_state", "steps_done", "asked_by", "created_at", "finished_at")
    list_filter = ("type", "state")
    list_select_related = ("cluster",)

    @display(description=_("state"), label=OPERATION_COLOURS)
    def coloured_state(self, row: FleetOperation) -> str:
        return str(row.get_state_display())

    @admin.display(description=_("steps done"))
    def steps_done(self, row: FleetOperation) -> str:
        return f"{sum(step['state'] == 'done' for step in row.steps)} / {len(row.steps)}"


@admin.register(Placement)
class PlacementAdmin(OperatorAdmin):
    when_empty = _("Which cluster an instance lives in. It is chosen when a tenant creates the instance.")
    symbol = "grid_view"
    list_display = ("instance", "cluster", "why", "bandwidth_mb_s", "storage_gb", "placed_at")
    ordering = ("cluster_id", "instance_id")  # its own columns: ordering by names would sort all rows for each page
    list_filter = ("cluster",)
    list_select_related = ("instance", "cluster")
    search_fields = ("instance__id", "instance__name")
    readonly_fields = ("reasons_listed",)

    @admin.display(description=_("reasons"))
    def why(self, row: Placement) -> str:
        return "; ".join(f"{item['cluster']}: {item['detail']}" for item in row.reasons[:REASONS_LISTED]) or "—"

    @admin.display(description=_("what each cluster had for it"))
    def reasons_listed(self, row: Placement) -> SafeString | str:
        lines = [
            f"{item['cluster']}: {item['detail']}; {item['left_bandwidth_mb_s']:,} MB/s, "
            f"{item['left_storage_gb']:,} GB, {item['own_instances']} of the same tenant"
            for item in row.reasons
        ]
        return format_html("<pre>{}</pre>", "\n".join(lines)) if lines else "—"


@admin.register(PortLease)
class PortLeaseAdmin(OperatorAdmin):
    when_empty = _(
        "The port of an instance on each of its brokers. It is given out when a tenant creates the instance."
    )
    symbol = "settings_ethernet"
    list_display = ("instance", "route", "broker", "host", "port", "leased_at")
    list_select_related = ("instance", "route", "broker", "host")
    ordering = ("instance_id", "broker_id")  # its own columns, like placements
    search_fields = ("instance__id", "port")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("broker__observed", "host__checks")
