"""Texts about alerts in the reader's language, for pages and mails."""

from __future__ import annotations

from django.utils.translation import gettext as _

from notifications.models import AlertFiring, AlertKind, AlertRule

PERCENT_KINDS = (AlertKind.STORAGE_USED, AlertKind.THROTTLED_SHARE)


def figure(kind: str, value: int | None) -> str:
    """Formats a figure with its unit; a dash if it is unknown."""
    if value is None:
        return "—"
    return f"{value:,} %" if kind in PERCENT_KINDS else f"{value:,}"


def condition(rule: AlertRule | AlertFiring) -> str:
    """Describes the condition of a rule."""
    values = {
        "limit": figure(rule.kind, rule.threshold), "for": rule.for_minutes, "window": rule.window_minutes,
        "group": rule.group_id, "topic": rule.topic,
    }  # fmt: skip
    return _TEMPLATES[AlertKind(rule.kind)]() % values if not rule.topic else _lag_of_topic() % values


def describe_firing(firing: AlertFiring) -> str:
    """Describes the measured value of a firing."""
    values = {
        "of": firing.of_name, "group": firing.group_id, "topic": firing.topic, "window": firing.window_minutes,
        "value": figure(firing.kind, firing.value), "limit": figure(firing.kind, firing.threshold),
    }  # fmt: skip
    match firing.kind:
        case AlertKind.STORAGE_USED:
            text = _("%(of)s uses %(value)s of its storage. The rule's limit: %(limit)s.")
        case AlertKind.THROTTLED_SHARE:
            text = _("Clients of %(of)s were delayed in %(value)s of %(window)s minutes. The rule's limit: %(limit)s.")
        case AlertKind.CONSUMER_LAG if firing.topic:
            text = _(
                "Group %(group)s of %(of)s is %(value)s records behind in topic %(topic)s. The rule's limit: %(limit)s."
            )
        case AlertKind.CONSUMER_LAG:
            text = _("Group %(group)s of %(of)s is %(value)s records behind. The rule's limit: %(limit)s.")
        case AlertKind.BROKERS_SILENT:
            text = _("Brokers of %(of)s that do not answer: %(value)s. The rule's limit: %(limit)s.")
        case AlertKind.CLUSTER_BROKERS_SILENT:
            text = _("Brokers of cluster %(of)s that do not answer: %(value)s. The rule's limit: %(limit)s.")
        case _:
            text = _("Under-replicated partitions of cluster %(of)s: %(value)s. The rule's limit: %(limit)s.")
    return text % values


def _lag_of_topic() -> str:
    return _("Group %(group)s is %(limit)s records or more behind in topic %(topic)s for %(for)s min")


_TEMPLATES = {
    AlertKind.STORAGE_USED: lambda: _("%(limit)s or more of the storage is used for %(for)s min"),
    AlertKind.THROTTLED_SHARE: lambda: _(
        "Clients were delayed in %(limit)s or more of the last %(window)s minutes, for %(for)s min"
    ),
    AlertKind.CONSUMER_LAG: lambda: _("Group %(group)s is %(limit)s records or more behind for %(for)s min"),
    AlertKind.BROKERS_SILENT: lambda: _("%(limit)s or more of its brokers do not answer for %(for)s min"),
    AlertKind.CLUSTER_UNDER_REPLICATED: lambda: _("%(limit)s or more partitions are under-replicated for %(for)s min"),
    AlertKind.CLUSTER_BROKERS_SILENT: lambda: _("%(limit)s or more brokers do not answer for %(for)s min"),
}
