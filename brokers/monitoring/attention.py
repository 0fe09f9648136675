"""Action items on the operator's first page: sentences with links, made from rows and cached observations.

No broker is queried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, cast

from django.urls import reverse, reverse_lazy
from django.utils.translation import gettext as _

from brokers.agent.check_rules import has_failed
from brokers.choices import Health, RebalanceState, RestartState
from brokers.limits import (
    DISK_NOW_PERCENT,
    DISK_SOON_PERCENT,
    HOST_LATE_S,
    OPERATION_LATE_S,
    SOLD_SOON_PERCENT,
)
from brokers.models import Broker, Cluster, FleetOperation, Host, Rebalance, RollingRestart
from brokers.monitoring.cluster_overview import ClusterMap
from brokers.monitoring.health import health, upstream_lost_since
from brokers.monitoring.incidents import Affected, Incident, describe
from brokers.selectors import ClusterCapacity
from instances.limits import BYTES_PER_GB
from instances.models import Instance, Operation
from tenants.formatting import clock
from tenants.message_field import entry
from tenants.wording import localized


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActionItem:
    """A matter that needs an operator.

    `act` is the text of the link. `is_now` is False for an item that is not urgent yet. `affected` names the affected
    instances, where they are known and the reader may see them; `affected_link` leads to all of them.
    """

    text: str
    link: str
    act: str
    is_now: bool = True
    affected: str = ""
    affected_link: str = ""


AffectedByIncident = Mapping[Incident, Affected]


def _map_link_fields(broker: Broker) -> dict[str, Any]:
    """Returns the fields `link` and `act` of an item that links to the map of a broker's cluster."""
    return {"link": _lazy_admin_url("brokers_cluster_map", broker.cluster_id), "act": _("Open the map")}


def _page_link_fields(broker: Broker) -> dict[str, Any]:
    """Returns the fields `link` and `act` of an item that links to the page of a broker."""
    return {"link": _lazy_admin_url("brokers_broker_change", broker.pk), "act": _("Open the broker")}


def _lazy_admin_url(name: str, key: str) -> str:
    """Returns the lazy address of an admin page: its computation is costly, and only few of the items are shown."""
    return cast(str, reverse_lazy(f"admin:{name}", args=[key]))


def is_silent(broker: Broker, now: datetime) -> bool:
    """True if the broker should run but does not serve its instances."""
    return health(broker, now) in (Health.LATE, Health.DOWN, Health.UPSTREAM_LOST)


def _affected_fields(
    affected_by_incident: AffectedByIncident, incident: Incident, cluster_id: str, query: str
) -> dict[str, Any]:
    """Returns the fields of an action item that describe the instances affected by the incident."""
    affected = affected_by_incident.get(incident)
    if affected is None:
        return {}
    link = f"{reverse('admin:brokers_cluster_affected', args=[cluster_id])}?{query}"
    return {"affected": describe(affected), "affected_link": link if affected.instances else ""}


def broker_items(
    broker: Broker, now: datetime, affected_by_incident: AffectedByIncident = MappingProxyType({})
) -> Iterator[OperatorActionItem]:
    """Yields items about a broker that should run: its health, unopened listeners, and full disks."""
    values = {"number": broker.number, "cluster": broker.cluster.name}
    state = health(broker, now)
    if state == Health.STOPPED:
        return
    affected_fields = _affected_fields(
        affected_by_incident, Incident(broker.pk), broker.cluster_id, f"broker={broker.number}"
    )
    if state == Health.LATE:
        text = _("Broker %(number)s of %(cluster)s does not answer.") % values
        yield OperatorActionItem(text=text, **_map_link_fields(broker), **affected_fields)
    elif state == Health.DOWN:
        yield OperatorActionItem(
            text=_("Broker %(number)s of %(cluster)s is down.") % values, **_page_link_fields(broker), **affected_fields
        )
    elif state == Health.UPSTREAM_LOST:
        since = clock(upstream_lost_since(broker))
        text = _("The upstream of broker %(number)s of %(cluster)s has not answered since %(since)s.")
        yield OperatorActionItem(
            text=text % (values | {"since": since}), **_page_link_fields(broker), **affected_fields
        )
    elif state == Health.DISK_OFFLINE:
        yield OperatorActionItem(
            text=_("A disk of broker %(number)s of %(cluster)s is offline.") % values, **_page_link_fields(broker)
        )
    if state not in (Health.HEALTHY, Health.DISK_OFFLINE, Health.UPSTREAM_LOST):
        return  # its last report is out of date
    unopened = int(broker.observed.get("unopened_listeners", 0))
    if unopened:
        text = _(
            "Broker %(number)s of %(cluster)s cannot open ports of instances: %(count)s. Another program has them."
        )
        yield OperatorActionItem(text=text % (values | {"count": f"{unopened:,}"}), **_page_link_fields(broker))
    if any(directory.get("nearly_full") for directory in broker.observed.get("log_directories", ())):
        text = _("A disk of broker %(number)s of %(cluster)s has less free than its floor: produce there is refused.")
        yield OperatorActionItem(text=text % values, **_page_link_fields(broker))
    percent = fullest_disk_percent(broker)
    if percent >= DISK_SOON_PERCENT:
        text = _("A disk of broker %(number)s of %(cluster)s is %(percent)s %% full.")
        is_now = percent >= DISK_NOW_PERCENT
        yield OperatorActionItem(
            text=text % (values | {"percent": percent}), is_now=is_now, **_page_link_fields(broker)
        )
    log_percent = int(broker.observed.get("log_bytes", 0)) * 100 // max(1, broker.storage_gb * BYTES_PER_GB)
    if log_percent >= DISK_SOON_PERCENT:
        text = _("Logs of broker %(number)s of %(cluster)s take %(percent)s %% of the storage it can sell.")
        yield OperatorActionItem(
            text=text % (values | {"percent": log_percent}),
            is_now=log_percent >= DISK_NOW_PERCENT,
            **_map_link_fields(broker),
        )


def fullest_disk_percent(broker: Broker) -> int:
    """Returns the highest usage, in percent, of a volume with log directories; 0 if no volume has a known size."""
    sizes = [
        (int(directory["total_bytes"]), int(directory["usable_bytes"]))
        for directory in broker.observed.get("log_directories", ())
        if directory.get("total_bytes") and not directory.get("offline_reason")
    ]
    return max(((total - usable) * 100 // total for total, usable in sizes), default=0)


def cluster_items(
    cluster: Cluster,
    cluster_map: ClusterMap | None,
    capacity: ClusterCapacity,
    hanging: int,
    affected_by_incident: AffectedByIncident = MappingProxyType({}),
) -> Iterator[OperatorActionItem]:
    """Yields items about a cluster: its partitions, its capacity, and the `hanging` transactions, as its coordinators
    report them.
    """
    values = {"cluster": cluster.name}
    if cluster_map is not None and cluster_map.is_known and not cluster_map.is_checking:
        for state, text in (
            ("offline", _("Partitions of %(cluster)s without a leader: %(count)s. Their clients wait.")),
            ("under_min_isr", _("Partitions of %(cluster)s that refuse acks=all: %(count)s.")),
            ("under_replicated", _("Under-replicated partitions of %(cluster)s: %(count)s.")),
        ):
            if cluster_map.counts[state]:
                sentence = text % (values | {"count": f"{cluster_map.counts[state]:,}"})
                affected_fields = _affected_fields(
                    affected_by_incident, Incident(cluster.pk, state), cluster.pk, f"state={state}"
                )
                is_now = state != "under_replicated"
                link = f"{reverse('admin:brokers_cluster_partitions', args=[cluster.pk])}?state={state}"
                yield OperatorActionItem(
                    text=sentence, link=link, act=_("Which ones"), is_now=is_now, **affected_fields
                )
    if hanging:
        text = _("Hanging transactions of %(cluster)s: %(count)s. Readers of committed messages wait behind them.")
        link = reverse("admin:brokers_transactions", args=[cluster.pk])
        yield OperatorActionItem(text=text % (values | {"count": f"{hanging:,}"}), link=link, act=_("Abort them"))
    for sold, limit, unit in (
        (capacity.sold_bandwidth_mb_s, capacity.bandwidth_mb_s, "MB/s"),
        (capacity.sold_storage_gb, capacity.storage_gb, "GB"),
    ):
        if cluster.accepts_instances and limit and sold * 100 >= limit * SOLD_SOON_PERCENT:
            sentence = _("%(cluster)s has sold %(sold)s of %(limit)s %(unit)s.") % (
                values | {"sold": f"{sold:,}", "limit": f"{limit:,}", "unit": unit}
            )
            link = reverse("admin:brokers_broker_add_to", args=[cluster.pk])
            yield OperatorActionItem(text=sentence, link=link, act=_("Add broker"), is_now=sold >= limit)


def host_items(host: Host, now: datetime) -> Iterator[OperatorActionItem]:
    """Yields items about a host with brokers that should run: the state of its agent."""
    link = reverse("admin:brokers_host_change", args=[host.pk])
    if host.agent_seen_at is None:
        text = _("No agent was ever seen on host %(host)s: nobody starts its brokers.") % {"host": host.name}
        yield OperatorActionItem(text=text, link=link, act=_("Open the host"))
    elif now - host.agent_seen_at > timedelta(seconds=HOST_LATE_S):
        values = {"host": host.name, "at": clock(host.agent_seen_at)}
        text = _("The agent of host %(host)s was last seen at %(at)s: nobody starts a broker there that dies.") % values
        yield OperatorActionItem(text=text, link=link, act=_("Open the host"))
    elif has_failed(host.checks):
        text = _("A check of host %(host)s failed: brokers do not run well there.") % {"host": host.name}
        yield OperatorActionItem(text=text, link=link, act=_("Open the host"))


def waiting_instance_item(instance: Instance, now: datetime) -> OperatorActionItem:
    """Returns the item of an instance that waits because no cluster has capacity for it."""
    minutes = int((now - instance.phase_since).total_seconds() // 60)
    values = {
        "name": instance.name,
        "tenant": instance.tenant.name,
        "mb_s": f"{instance.bandwidth_mb_s:,}",
        "gb": f"{instance.storage_gb:,}",
        "kind": instance.get_cluster_type_display(),
        "minutes": f"{minutes:,}",
    }
    text = _(
        "%(name)s of %(tenant)s (%(kind)s, %(mb_s)s MB/s, %(gb)s GB) waits for room since %(minutes)s min. "
        "It starts by itself when you add some."
    )
    return OperatorActionItem(
        text=text % values, link=reverse("admin:brokers_cluster_changelist"), act=_("Add capacity")
    )


def fleet_operation_items(operations: Iterable[FleetOperation], now: datetime) -> Iterator[OperatorActionItem]:
    """Yields items about clusters whose formation or retirement is overdue."""
    for row in operations:
        if now - row.created_at < timedelta(seconds=OPERATION_LATE_S):
            continue
        step = next((step for step in row.steps if step["state"] != "done"), None)
        values = {
            "what": row.get_type_display(),
            "cluster": row.cluster.name,
            "why": localized(entry(step, "fact") if step else ""),
        }
        link = reverse("admin:brokers_cluster_map", args=[row.cluster_id])
        yield OperatorActionItem(
            text=_("%(what)s (%(cluster)s) waits: %(why)s") % values, link=link, act=_("Look at it"), is_now=False
        )


def failed_instance_item(instance: Instance) -> OperatorActionItem:
    """Returns the item of an instance that failed before it ever ran."""
    values = {
        "name": instance.name,
        "tenant": instance.tenant.name,
        "reason": instance.get_reason_display() or instance.reason,
    }
    text = _("Creating %(name)s of %(tenant)s failed: %(reason)s.") % values
    return OperatorActionItem(
        text=text, link=reverse("admin:instances_instance_change", args=[instance.pk]), act=_("See the instance")
    )


def operation_item(operation: Operation, now: datetime) -> OperatorActionItem:
    """Returns the item of an overdue operation."""
    minutes = int((now - operation.created_at).total_seconds() // 60)
    values = {"what": operation.get_type_display(), "name": operation.instance.name, "minutes": f"{minutes:,}"}
    text = _("%(what)s: %(name)s is not done after %(minutes)s min.") % values
    return OperatorActionItem(
        text=text, link=reverse("admin:instances_operation_change", args=[operation.pk]), act=_("See the operation")
    )


def unfinished_work_items(
    rebalances: Iterable[Rebalance], restarts: Iterable[RollingRestart]
) -> Iterator[OperatorActionItem]:
    """Yields items about rebalances and rolling restarts that are waiting or paused."""
    for row in rebalances:
        link = reverse("admin:brokers_rebalance_change", args=[row.pk])
        yield from _work_items(row.title, row.cluster.name, row.trouble, row.state == RebalanceState.PAUSED, link)
    for restart in restarts:
        link = reverse("admin:brokers_cluster_map", args=[restart.cluster_id])
        is_paused = restart.state == RestartState.PAUSED
        yield from _work_items(_("Rolling restart"), restart.cluster.name, restart.trouble, is_paused, link)


def _work_items(title: str, cluster: str, reason: str, is_paused: bool, link: str) -> Iterator[OperatorActionItem]:
    values = {"what": title, "cluster": cluster, "why": localized(reason)}
    if is_paused:
        text = _("%(what)s (%(cluster)s) is paused.") % values
        yield OperatorActionItem(text=text, link=link, act=_("Resume or end it"), is_now=False)
    elif reason:
        text = _("%(what)s (%(cluster)s) waits: %(why)s") % values
        yield OperatorActionItem(text=text, link=link, act=_("Look at it"), is_now=False)
