"""Sentences about actions of Kafka clients in the audit log: "created topic orders (3 partitions)"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from tenants.choices import ActorKind
from tenants.models import AuditEntry

# Maximum number of names in a sentence; the row's values contain all of them.
NAMES_SHOWN_MAX = 3


class _Row:
    """Values of an audit entry from which its sentence is made."""

    def __init__(self, entry: AuditEntry) -> None:
        self.action = entry.action
        self.before: Mapping[str, Any] = entry.before or {}
        self.after: Mapping[str, Any] = entry.after or {}
        self.context: Mapping[str, Any] = entry.context or {}
        # Name of the target, without the instance and the prefix that names its kind.
        self.name = entry.target_id.partition("/")[2]
        for start in ("users/", "acls/"):
            if entry.target_type in ("user", "acl"):
                self.name = self.name.removeprefix(start)

    @property
    def requests(self) -> int:
        return int(self.context.get("requests", 1))


def sentence_of(entry: AuditEntry) -> str:
    """Returns the sentence of a row; "" for other actors, and for actions unknown to this version."""
    if entry.actor_kind != ActorKind.CLIENT:
        return ""
    row = _Row(entry)
    sentence = _sentence(row)
    if row.after.get("outcome") == "unknown":
        return _("%(words)s; nobody knows whether it was done") % {"words": sentence} if sentence else sentence
    return sentence


def _sentence(row: _Row) -> str:
    more = row.after.get("more")
    if isinstance(more, int):
        return _("and %(n)s more") % {"n": more}
    if row.action in _SUMMARIES:
        return _SUMMARIES[row.action](row)
    if row.requests > 1 and row.action != "group.offsets_committed":
        return _requests_sentence(row)
    format_sentence = _SENTENCES.get(row.action)
    return "" if format_sentence is None else format_sentence(row)


# -- single objects -------------------------------------------------------------------------------------------------


def _topic_created(row: _Row) -> str:
    count = int(row.after.get("partitions", 0))
    sentence = ngettext(
        "created topic %(name)s (%(n)s partition)", "created topic %(name)s (%(n)s partitions)", count
    ) % {"name": row.name, "n": count}  # fmt: skip
    return _("%(words)s by using it") % {"words": sentence} if row.after.get("automatically") else sentence


def _topic_changed(row: _Row) -> str:
    partitions = row.after.get("partitions")
    if partitions is not None:
        text = _("grew topic %(name)s from %(before)s to %(after)s partitions")
        return text % {"name": row.name, "before": row.before.get("partitions", "?"), "after": partitions}
    names = list({**(row.before.get("config") or {}), **(row.after.get("config") or {})})
    return _("configured topic %(name)s: %(settings)s") % {"name": row.name, "settings": _joined_names(names)}


def _records_deleted(row: _Row) -> str:
    count = int(row.after.get("partitions", 0))
    return ngettext(
        "deleted records of %(n)s partition of topic %(name)s",
        "deleted records of %(n)s partitions of topic %(name)s",
        count,
    ) % {"name": row.name, "n": count}


def _offsets_committed(row: _Row) -> str:
    count = int(row.after.get("partitions", 0))
    text = ngettext(
        "set offsets of group %(name)s for %(n)s partition",
        "set offsets of group %(name)s for %(n)s partitions",
        count,
    ) % {"name": row.name, "n": count}
    if row.requests == 1:
        return text
    return _("%(words)s, %(count)s times") % {"words": text, "count": row.requests}


def _offsets_deleted(row: _Row) -> str:
    count = int(row.before.get("partitions", 0))
    return ngettext(
        "deleted offsets of group %(name)s for %(n)s partition",
        "deleted offsets of group %(name)s for %(n)s partitions",
        count,
    ) % {"name": row.name, "n": count}


def _acl_sentence(text: str, rule: Mapping[str, Any], row: _Row) -> str:
    return text % {
        "permission": rule.get("permission", "?"),
        "principal": rule.get("principal", "?"),
        "operation": rule.get("operation", "?"),
        "name": row.name,
    }


def _acl_created(row: _Row) -> str:
    text = _("made an access rule: %(permission)s %(principal)s %(operation)s on %(name)s")
    return _acl_sentence(text, row.after, row)


def _acl_deleted(row: _Row) -> str:
    text = _("deleted an access rule: %(permission)s %(principal)s %(operation)s on %(name)s")
    return _acl_sentence(text, row.before, row)


def _limit_list(row: _Row) -> str:
    return _joined_names([f"{name} {value:g}" for name, value in row.after.items() if isinstance(value, int | float)])


# Sentences about one action, by action.
_SENTENCES: Mapping[str, Callable[[_Row], str]] = {
    "topic.created": _topic_created,
    "topic.changed": _topic_changed,
    "topic.deleted": lambda row: _("deleted topic %(name)s") % {"name": row.name},
    "topic.restored": lambda row: _("restored topic %(name)s") % {"name": row.name},
    "topic.deleted_for_good": lambda row: _("deleted topic %(name)s for good") % {"name": row.name},
    "topic.records_deleted": _records_deleted,
    "group.deleted": lambda row: _("deleted group %(name)s") % {"name": row.name},
    "group.offsets_committed": _offsets_committed,
    "group.offsets_deleted": _offsets_deleted,
    "user.created": lambda row: _("created user %(name)s") % {"name": row.name},
    "user.deleted": lambda row: _("deleted user %(name)s") % {"name": row.name},
    "user.credentials_changed": lambda row: _("changed the password of user %(name)s") % {"name": row.name},
    "acl.created": _acl_created,
    "acl.deleted": _acl_deleted,
    "quota.set": lambda row: _("limited %(name)s: %(limits)s") % {"name": row.name, "limits": _limit_list(row)},
    "quota.removed": lambda row: _("took the limits of %(name)s away") % {"name": row.name},
}


# -- several objects ------------------------------------------------------------------------------------------------


def _requests_sentence(row: _Row) -> str:
    names = row.after.get("names") or []
    text = _("%(count)s requests of this kind, among them %(names)s") if names else _("%(count)s requests of this kind")
    return text % {"count": row.requests, "names": _joined_names(names)}


def _why_refused(reason: object) -> str:
    """Returns the reason why a client's certificate was refused; "" for a reason unknown to this version."""
    return {
        "no_certificate": _("no certificate was shown"),
        "untrusted": _("the certificate is of no authority of the route"),
        "unreadable": _("the certificate cannot be read"),
        "expired": _("the certificate has expired"),
        "revoked": _("the certificate is revoked"),
        "names_nobody": _("the certificate names no user"),
        "user_shut_out": _("the user is disabled or has expired"),
    }.get(str(reason), "")


def _sign_in_failed(row: _Row) -> str:
    text = ngettext("%(n)s failed sign-in", "%(n)s failed sign-ins", row.requests) % {"n": row.requests}
    why = _why_refused(row.after.get("reason"))
    return _("%(words)s: %(why)s") % {"words": text, "why": why} if why else text


def _sign_in_refused(row: _Row) -> str:
    return ngettext(
        "%(n)s sign-in refused after too many failed ones",
        "%(n)s sign-ins refused after too many failed ones",
        row.requests,
    ) % {"n": row.requests}


def _denied(row: _Row) -> str:
    names = row.after.get("names")
    values = {"n": row.requests, "action": row.after.get("asked", "?"), "names": _joined_names(names or [])}
    if not names:
        return ngettext(
            "has no right to: %(action)s (%(n)s request)", "has no right to: %(action)s (%(n)s requests)", row.requests
        ) % values  # fmt: skip
    return (
        ngettext(
            "has no right to: %(action)s of %(names)s (%(n)s request)",
            "has no right to: %(action)s of %(names)s (%(n)s requests)",
            row.requests,
        )
        % values
    )


# Sentences about actions that one row may summarise by their number.
_SUMMARIES: Mapping[str, Callable[[_Row], str]] = {
    "client.sign_in_failed": _sign_in_failed,
    "client.sign_in_refused": _sign_in_refused,
    "client.denied": _denied,
}


def _joined_names(names: list[Any]) -> str:
    shown = ", ".join(map(str, names[:NAMES_SHOWN_MAX]))
    return f"{shown}, …" if len(names) > NAMES_SHOWN_MAX else shown
