"""What a tenant has to know about an instance: what is affected, what it means, and what to do or who does it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from instances.choices import ConditionType
from instances.lifecycle.conditions import STORAGE_FULL, Fault, faults_of
from instances.lifecycle.phases import REACHABLE, Phase
from instances.models import Instance
from instances.views.suspension import suspension
from tenants.formatting import clock, from_ms
from tenants.wording import localized


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """`badge` is its short form beside the state; empty where the state says it already."""

    instance: Instance
    title: str
    meaning: str
    advice: str
    since: datetime
    badge: str = ""


def needs_of(instance: Instance) -> list[Need]:
    """Everything about one instance that is not well, what stops it first."""
    result = [need for need in (_suspended(instance), _failed(instance)) if need]
    return result + faults(instance)


def faults(instance: Instance) -> list[Need]:
    """What is wrong with the brokers of an instance that clients may use."""
    if instance.current_phase not in REACHABLE:
        return []
    return [_fault(instance, item) for item in faults_of(instance.conditions)]


def _suspended(instance: Instance) -> Need | None:
    why = suspension(instance)
    if why is None:
        return None
    return Need(
        instance=instance,
        title=_("Suspended: %(reason)s") % {"reason": why.reason},
        meaning=_("Produce is refused, not delayed. Reads work, and messages are kept."),
        advice=why.note or _("Ask the operator what ends it."),
        since=why.since,
    )


def _failed(instance: Instance) -> Need | None:
    if instance.current_phase is not Phase.FAILED:
        return None
    return Need(
        instance=instance,
        title=_("Not made: %(reason)s") % {"reason": instance.get_reason_display()},
        meaning=_("Nothing was charged."),
        advice=_("Try again on its page, or delete it."),
        since=instance.phase_since,
    )


def _fault(instance: Instance, fault: Fault) -> Need:
    if fault.type == ConditionType.PARTITIONS_LED:
        return _leaderless(instance, fault)
    if fault.type == ConditionType.STORAGE_AVAILABLE:
        return _storage(instance, fault)
    if fault.type == ConditionType.RETENTION_KEPT:
        return _shortened(instance, fault)
    if fault.type == ConditionType.STORAGE_GROWS:
        return _not_growing(instance, fault)
    brokers: list[int] = list(fault.data.get("brokers", ()))
    words = {"ids": ", ".join(map(str, brokers)), "of": len(instance.endpoints)}
    return Need(
        instance=instance,
        badge=_("Broker silent"),
        title=ngettext(
            "Broker %(ids)s of your %(of)d does not answer",
            "Brokers %(ids)s of your %(of)d do not answer",
            len(brokers),
        )
        % words,
        meaning=_(
            "Partitions with another replica in sync go on there within seconds. Those with one replica wait until the"
            " broker is back; what is stored is kept."
        ),
        advice=_("The operators see it too. Clients reconnect by themselves; topics with two replicas stay available."),
        since=fault.since,
    )


def is_full(instance: Instance) -> bool:
    """Whether produce is refused because the storage is used up."""
    return any(
        fault.type == ConditionType.STORAGE_AVAILABLE and fault.data.get("percent") == STORAGE_FULL
        for fault in faults_of(instance.conditions)
    )


def _storage(instance: Instance, fault: Fault) -> Need:
    percent = int(fault.data.get("percent", 0))
    if percent == STORAGE_FULL:
        return Need(
            instance=instance,
            badge=_("Storage full"),
            title=_("The storage is used up"),
            meaning=_("Produce is refused until less than 98 % is used. Reads, commits, retention and deletes go on."),
            advice=_("Delete records or topics, shorten retention, or buy more storage."),
            since=fault.since,
        )
    return Need(
        instance=instance,
        badge=_("Storage %(percent)d %%") % {"percent": percent},
        title=_("%(percent)d %% of the storage is used") % {"percent": percent},
        meaning=_("At 100 % produce is refused. All replicas count."),
        advice=_("Delete records or topics, shorten retention, or buy more storage."),
        since=fault.since,
    )


def _shortened(instance: Instance, fault: Fault) -> Need:
    kept = [
        _("%(topic)s from %(time)s") % {"topic": name, "time": clock(from_ms(oldest_ms))}
        for name, oldest_ms in fault.data.get("topics", ())
    ]
    return Need(
        instance=instance,
        badge=_("Retention shortened"),
        title=_("Oldest records were deleted before their time"),
        meaning=_("The storage was nearly used up, and the settings let records go for it. Kept: %(kept)s.")
        % {"kept": _(", ").join(kept)},
        advice=_("Shorten retention, or buy more storage, if consumers need older records."),
        since=fault.since,
    )


def _not_growing(instance: Instance, fault: Fault) -> Need:
    return Need(
        instance=instance,
        badge=_("Does not grow"),
        title=_("Storage was to grow by itself and could not"),
        meaning=localized(str(fault.data.get("detail", ""))),
        advice=_("It is tried again every 15 minutes. You can also delete records, or choose a larger plan."),
        since=fault.since,
    )


def _leaderless(instance: Instance, fault: Fault) -> Need:
    count, names = int(fault.data.get("count", 0)), list(fault.data.get("partitions", ()))
    described = _(", ").join(names) + (" …" if count > len(names) else "")
    return Need(
        instance=instance,
        badge=_("No leader"),
        title=ngettext("%(n)d partition has no leader: %(names)s", "%(n)d partitions have no leader: %(names)s", count)
        % {"n": count, "names": described},
        meaning=_("They take and give no messages until a replica is back. All other partitions go on."),
        advice=_("The operators see it too. Clients try again by themselves; more replicas keep a topic available."),
        since=fault.since,
    )
