"""The fleet in the operator panel: clusters, hosts, brokers with their health, and where instances live."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from brokers import selectors, services
from brokers.choices import Health
from brokers.health import offline_directories
from brokers.models import Broker, Cluster, Host, Placement, PortLease
from tenants.actors import Actor
from tenants.operator import OperatorAdmin, operator_action

HEALTH_COLOURS = {
    Health.HEALTHY.label: "success",
    Health.STARTING.label: "info",
    Health.LATE.label: "warning",
    Health.DISK_OFFLINE.label: "danger",
    Health.DOWN.label: "danger",
}


@admin.register(Cluster)
class ClusterAdmin(OperatorAdmin):
    symbol = "hub"
    list_display = ("id", "name", "kind", "accepts_instances", "sold_bandwidth", "sold_storage", "instances")
    exclude = ("control_secret_file",)

    @admin.display(description=_("sold bandwidth"))
    def sold_bandwidth(self, cluster: Cluster) -> str:
        room = selectors.room_of(cluster)
        return f"{room.sold_bandwidth_mb_s:,} / {room.bandwidth_mb_s:,} MB/s"

    @admin.display(description=_("sold storage"))
    def sold_storage(self, cluster: Cluster) -> str:
        room = selectors.room_of(cluster)
        return f"{room.sold_storage_gb:,} / {room.storage_gb:,} GB"

    @admin.display(description=_("instances"))
    def instances(self, cluster: Cluster) -> int:
        return selectors.room_of(cluster).instances


@admin.register(Host)
class HostAdmin(OperatorAdmin):
    symbol = "dns"
    list_display = ("id", "name", "advertised_host", "port_first", "port_last", "agent_seen_at")


@admin.register(Broker)
class BrokerAdmin(OperatorAdmin):
    symbol = "memory"
    list_display = ("number", "cluster", "host", "health", "wanted", "process_state", "process_restarts", "load")
    readonly_fields = ("offline_disks",)
    list_filter = ("cluster", "wanted", "process_state")
    list_select_related = ("cluster", "host")
    actions = ("restart",)

    @display(description=_("health"), label=HEALTH_COLOURS)
    def health(self, broker: Broker) -> str:
        return str(selectors.health_of(broker).label)

    @admin.display(description=_("disks offline"))
    def offline_disks(self, broker: Broker) -> str:
        lines = [f"{path}: {reason}" for path, reason in offline_directories(broker).items()]
        return "; ".join(lines) or "—"

    @admin.display(description=_("leaders, connections"))
    def load(self, broker: Broker) -> str:
        status = broker.observed or {}
        return f"{status.get('leaders', '—')}, {status.get('connections', '—')}"

    @operator_action(_("Restart (one at a time)"))
    def restart(self, acting: Actor, broker: Broker) -> Any:
        services.restart_broker(acting=acting, broker=broker)
        return _("is being restarted")


@admin.register(Placement)
class PlacementAdmin(OperatorAdmin):
    symbol = "grid_view"
    list_display = ("instance", "cluster", "bandwidth_mb_s", "storage_gb", "placed_at")
    list_filter = ("cluster",)
    list_select_related = ("instance", "cluster")
    search_fields = ("instance__id", "instance__name")


@admin.register(PortLease)
class PortLeaseAdmin(OperatorAdmin):
    symbol = "settings_ethernet"
    list_display = ("instance", "broker", "host", "port", "leased_at")
    list_select_related = ("instance", "broker__host", "host")
    search_fields = ("instance__id", "port")
