"""Notices about faults and alerts of an instance: the affected part, the consequence, and advice.

Each cause has one `InstanceNotice`: partitions without a leader are part of the notice about their broker, and an alert
is part of the notice about its fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from instances import interfaces
from instances.choices import ConditionType
from instances.interfaces import FiringAlert
from instances.lifecycle.conditions import STORAGE_FULL_PERCENT, Fault, faults_of
from instances.lifecycle.phases import REACHABLE, Phase
from instances.models import Instance
from instances.views.suspension import suspension
from tenants.actors import Actor
from tenants.formatting import clock, from_ms
from tenants.message_field import entry
from tenants.wording import localized

# Conditions by the kind of alert rule that has the same cause.
CONDITION_OF_ALERT = {
    "storage_used": ConditionType.STORAGE_AVAILABLE.value,
    "brokers_silent": ConditionType.BROKERS_ANSWER.value,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNotice:
    """A notice about one fault or alert. `badge` is its short form beside the state, empty if the state says the same.

    `alerts` are the firing alerts about it; `is_storage`: it ends with more storage or fewer records.
    """

    instance: Instance
    title: str
    meaning: str
    advice: str
    since: datetime
    badge: str = ""
    alerts: tuple[FiringAlert, ...] = ()
    is_storage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderlessSummary:
    """Number of an instance's partitions without a leader, and the names of some."""

    count: int
    names: str


def notices_of(instance: Instance, alerts: Sequence[FiringAlert] = ()) -> list[InstanceNotice]:
    """Returns all notices about one instance, suspension and failure first. `alerts` are its firing alerts."""
    result = [notice for notice in (_suspension_notice(instance), _failure_notice(instance)) if notice]
    return result + fault_notices(instance, alerts)


def fault_notices(instance: Instance, alerts: Sequence[FiringAlert] = ()) -> list[InstanceNotice]:
    """Returns notices about faults and alerts of an instance that clients may use, one for each cause."""
    current_faults = faults_of(instance.conditions) if instance.current_phase in REACHABLE else []
    by_type = {fault.type: fault for fault in current_faults}
    leaderless = by_type.get(ConditionType.PARTITIONS_LED)
    if leaderless is not None and ConditionType.BROKERS_ANSWER in by_type:
        current_faults = [fault for fault in current_faults if fault is not leaderless]
    result = []
    included: list[FiringAlert] = []
    for fault in current_faults:
        fault_alerts = tuple(alert for alert in alerts if CONDITION_OF_ALERT.get(alert.kind) == fault.type)
        included += fault_alerts
        result.append(replace(_fault_notice(instance, fault, leaderless), alerts=fault_alerts))
    return result + [alert_notice(instance, alert) for alert in alerts if alert not in included]


def alerts_by_instance(alerts: Iterable[FiringAlert]) -> dict[str, list[FiringAlert]]:
    """Returns alerts by the id of their instance."""
    result: dict[str, list[FiringAlert]] = {}
    for alert in alerts:
        result.setdefault(alert.instance_id, []).append(alert)
    return result


def firing_alerts_of(acting: Actor, instance: Instance) -> Sequence[FiringAlert]:
    """Returns the firing alerts of one instance."""
    return interfaces.firing_alerts.implementation(acting, instance.pk)


def leaderless_of(instance: Instance) -> LeaderlessSummary | None:
    """Returns the partitions without a leader, which are unavailable; None if there are none."""
    current_faults = faults_of(instance.conditions) if instance.current_phase in REACHABLE else []
    fault = next((fault for fault in current_faults if fault.type == ConditionType.PARTITIONS_LED), None)
    return (
        None
        if fault is None
        else LeaderlessSummary(count=int(fault.data.get("count", 0)), names=_partition_names(fault))
    )


def alert_notice(instance: Instance, alert: FiringAlert) -> InstanceNotice:
    """Returns the notice of an alert that belongs to no fault."""
    return InstanceNotice(
        instance=instance,
        badge=_("Alert"),
        title=alert.text,
        meaning="",
        advice="",
        since=alert.since,
        alerts=(alert,),
    )


def _suspension_notice(instance: Instance) -> InstanceNotice | None:
    suspended = suspension(instance)
    if suspended is None:
        return None
    return InstanceNotice(
        instance=instance,
        title=_("Suspended: %(reason)s") % {"reason": suspended.reason},
        meaning=_("Produce is refused, not delayed. Reads work, and messages are kept."),
        advice=suspended.note or _("Ask the operator what ends it."),
        since=suspended.since,
    )


def _failure_notice(instance: Instance) -> InstanceNotice | None:
    if instance.current_phase is not Phase.FAILED:
        return None
    return InstanceNotice(
        instance=instance,
        title=_("Not made: %(reason)s") % {"reason": instance.get_reason_display()},
        meaning=_("Nothing was charged."),
        advice=_("Try again on its page, or delete it."),
        since=instance.phase_since,
    )


def _fault_notice(instance: Instance, fault: Fault, leaderless: Fault | None) -> InstanceNotice:
    if fault.type == ConditionType.PARTITIONS_LED:
        return _leaderless_notice(instance, fault)
    if fault.type == ConditionType.STORAGE_AVAILABLE:
        return _storage_notice(instance, fault)
    if fault.type == ConditionType.RETENTION_KEPT:
        return _shortened_notice(instance, fault)
    if fault.type == ConditionType.STORAGE_GROWS:
        return _not_growing_notice(instance, fault)
    brokers: list[int] = list(fault.data.get("brokers", ()))
    values = {"ids": ", ".join(map(str, brokers)), "of": len(instance.endpoints)}
    title = ngettext(
        "Broker %(ids)s of your %(of)d does not answer",
        "Brokers %(ids)s of your %(of)d do not answer",
        len(brokers),
    )
    if leaderless is not None:
        parts = {"broker": title % values, "partitions": _leaderless_title(leaderless)}
        title, values = _("%(broker)s: %(partitions)s"), parts
    return InstanceNotice(
        instance=instance,
        badge=_("Broker silent"),
        title=title % values,
        meaning=_(
            "Partitions with another replica in sync go on there within seconds. Those with one replica wait until the"
            " broker is back; what is stored is kept."
        ),
        advice=_("The operators see it too. Clients reconnect by themselves; topics with two replicas stay available."),
        since=fault.since,
    )


def is_full(instance: Instance) -> bool:
    """True if produce is refused because the storage is full."""
    return any(
        fault.type == ConditionType.STORAGE_AVAILABLE and fault.data.get("percent") == STORAGE_FULL_PERCENT
        for fault in faults_of(instance.conditions)
    )


def _storage_notice(instance: Instance, fault: Fault) -> InstanceNotice:
    percent = int(fault.data.get("percent", 0))
    if percent == STORAGE_FULL_PERCENT:
        return InstanceNotice(
            instance=instance,
            badge=_("Storage full"),
            title=_("The storage is used up"),
            is_storage=True,
            meaning=_("Produce is refused until less than 98 % is used. Reads, commits, retention and deletes go on."),
            advice=_("Delete records or topics, shorten retention, or buy more storage."),
            since=fault.since,
        )
    return InstanceNotice(
        instance=instance,
        badge=_("Storage %(percent)d %%") % {"percent": percent},
        is_storage=True,
        title=_("%(percent)d %% of the storage is used") % {"percent": percent},
        meaning=_("At 100 % produce is refused. All replicas count."),
        advice=_("Delete records or topics, shorten retention, or buy more storage."),
        since=fault.since,
    )


def _shortened_notice(instance: Instance, fault: Fault) -> InstanceNotice:
    oldest_records = [
        _("%(topic)s from %(time)s") % {"topic": name, "time": clock(from_ms(oldest_ms))}
        for name, oldest_ms in fault.data.get("topics", ())
    ]
    return InstanceNotice(
        instance=instance,
        badge=_("Retention shortened"),
        is_storage=True,
        title=_("Oldest records were deleted before their time"),
        meaning=_("The storage was nearly used up, and the settings let records go for it. Kept: %(kept)s.")
        % {"kept": _(", ").join(oldest_records)},
        advice=_("Shorten retention, or buy more storage, if consumers need older records."),
        since=fault.since,
    )


def _not_growing_notice(instance: Instance, fault: Fault) -> InstanceNotice:
    return InstanceNotice(
        instance=instance,
        badge=_("Does not grow"),
        is_storage=True,
        title=_("Storage was to grow by itself and could not"),
        meaning=localized(entry(fault.data, "detail")),
        advice=_("It is tried again every 15 minutes. You can also delete records, or choose a larger plan."),
        since=fault.since,
    )


def _partition_names(fault: Fault) -> str:
    count, names = int(fault.data.get("count", 0)), list(fault.data.get("partitions", ()))
    return _(", ").join(names) + (" …" if count > len(names) else "")


def _leaderless_title(fault: Fault) -> str:
    count = int(fault.data.get("count", 0))
    text = ngettext("%(n)d partition has no leader: %(names)s", "%(n)d partitions have no leader: %(names)s", count)
    return text % {"n": count, "names": _partition_names(fault)}


def _leaderless_notice(instance: Instance, fault: Fault) -> InstanceNotice:
    return InstanceNotice(
        instance=instance,
        badge=_("No leader"),
        title=_leaderless_title(fault),
        meaning=_("They take and give no messages until a replica is back. All other partitions go on."),
        advice=_("The operators see it too. Clients try again by themselves; more replicas keep a topic available."),
        since=fault.since,
    )
