"""What a Kafka client did, as a row of the audit log says it to a person: "created topic orders (3 partitions)"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from tenants.choices import ActorKind
from tenants.models import AuditEntry

# Names in one sentence; the row's values have all of them.
NAMES_SHOWN_MAX = 3


class _Told:
    """A row, taken apart for whoever makes a sentence of it."""

    def __init__(self, entry: AuditEntry) -> None:
        self.action = entry.action
        self.before: Mapping[str, Any] = entry.before or {}
        self.after: Mapping[str, Any] = entry.after or {}
        self.context: Mapping[str, Any] = entry.context or {}
        # Without the instance, and without what says of which kind it is.
        self.name = entry.target_id.partition("/")[2]
        for start in ("users/", "acls/"):
            if entry.target_type in ("user", "acl"):
                self.name = self.name.removeprefix(start)

    @property
    def requests(self) -> int:
        return int(self.context.get("requests", 1))


def sentence_of(entry: AuditEntry) -> str:
    """ "" for what other than clients did, and for what this version has no words for."""
    if entry.actor_kind != ActorKind.CLIENT:
        return ""
    told = _Told(entry)
    words = _words(told)
    if told.after.get("outcome") == "unknown":
        return _("%(words)s; nobody knows whether it was done") % {"words": words} if words else words
    return words


def _words(told: _Told) -> str:
    more = told.after.get("more")
    if isinstance(more, int):
        return _("and %(n)s more") % {"n": more}
    if told.action in _OFTEN:
        return _OFTEN[told.action](told)
    if told.requests > 1 and told.action != "group.offsets_committed":
        return _many(told)
    make = _ONCE.get(told.action)
    return "" if make is None else make(told)


# -- one thing --------------------------------------------------------------------------------------------------------


def _topic_created(told: _Told) -> str:
    count = int(told.after.get("partitions", 0))
    made = ngettext(
        "created topic %(name)s (%(n)s partition)", "created topic %(name)s (%(n)s partitions)", count
    ) % {"name": told.name, "n": count}  # fmt: skip
    return _("%(words)s by using it") % {"words": made} if told.after.get("automatically") else made


def _topic_changed(told: _Told) -> str:
    partitions = told.after.get("partitions")
    if partitions is not None:
        text = _("grew topic %(name)s from %(before)s to %(after)s partitions")
        return text % {"name": told.name, "before": told.before.get("partitions", "?"), "after": partitions}
    names = list({**(told.before.get("config") or {}), **(told.after.get("config") or {})})
    return _("configured topic %(name)s: %(settings)s") % {"name": told.name, "settings": _list(names)}


def _records_deleted(told: _Told) -> str:
    count = int(told.after.get("partitions", 0))
    return ngettext(
        "deleted records of %(n)s partition of topic %(name)s",
        "deleted records of %(n)s partitions of topic %(name)s",
        count,
    ) % {"name": told.name, "n": count}


def _offsets_committed(told: _Told) -> str:
    count = int(told.after.get("partitions", 0))
    words = ngettext(
        "set offsets of group %(name)s for %(n)s partition",
        "set offsets of group %(name)s for %(n)s partitions",
        count,
    ) % {"name": told.name, "n": count}
    if told.requests == 1:
        return words
    return _("%(words)s, %(count)s times") % {"words": words, "count": told.requests}


def _offsets_deleted(told: _Told) -> str:
    count = int(told.before.get("partitions", 0))
    return ngettext(
        "deleted offsets of group %(name)s for %(n)s partition",
        "deleted offsets of group %(name)s for %(n)s partitions",
        count,
    ) % {"name": told.name, "n": count}


def _rule(text: str, rule: Mapping[str, Any], told: _Told) -> str:
    return text % {
        "permission": rule.get("permission", "?"),
        "principal": rule.get("principal", "?"),
        "operation": rule.get("operation", "?"),
        "name": told.name,
    }


def _acl_created(told: _Told) -> str:
    text = _("made an access rule: %(permission)s %(principal)s %(operation)s on %(name)s")
    return _rule(text, told.after, told)


def _acl_deleted(told: _Told) -> str:
    text = _("deleted an access rule: %(permission)s %(principal)s %(operation)s on %(name)s")
    return _rule(text, told.before, told)


def _limits(told: _Told) -> str:
    return _list([f"{name} {value:g}" for name, value in told.after.items() if isinstance(value, int | float)])


_ONCE: Mapping[str, Callable[[_Told], str]] = {
    "topic.created": _topic_created,
    "topic.changed": _topic_changed,
    "topic.deleted": lambda told: _("deleted topic %(name)s") % {"name": told.name},
    "topic.records_deleted": _records_deleted,
    "group.deleted": lambda told: _("deleted group %(name)s") % {"name": told.name},
    "group.offsets_committed": _offsets_committed,
    "group.offsets_deleted": _offsets_deleted,
    "user.created": lambda told: _("created user %(name)s") % {"name": told.name},
    "user.deleted": lambda told: _("deleted user %(name)s") % {"name": told.name},
    "user.credentials_changed": lambda told: _("changed the password of user %(name)s") % {"name": told.name},
    "acl.created": _acl_created,
    "acl.deleted": _acl_deleted,
    "quota.set": lambda told: _("limited %(name)s: %(limits)s") % {"name": told.name, "limits": _limits(told)},
    "quota.removed": lambda told: _("took the limits of %(name)s away") % {"name": told.name},
}


# -- several at once --------------------------------------------------------------------------------------------------


def _many(told: _Told) -> str:
    names = told.after.get("names") or []
    text = _("%(count)s requests of this kind, among them %(names)s") if names else _("%(count)s requests of this kind")
    return text % {"count": told.requests, "names": _list(names)}


def _sign_in_failed(told: _Told) -> str:
    return ngettext("%(n)s failed sign-in", "%(n)s failed sign-ins", told.requests) % {"n": told.requests}


def _sign_in_refused(told: _Told) -> str:
    return ngettext(
        "%(n)s sign-in refused after too many failed ones",
        "%(n)s sign-ins refused after too many failed ones",
        told.requests,
    ) % {"n": told.requests}


def _denied(told: _Told) -> str:
    names = told.after.get("names")
    values = {"n": told.requests, "action": told.after.get("asked", "?"), "names": _list(names or [])}
    if not names:
        return ngettext(
            "has no right to: %(action)s (%(n)s request)", "has no right to: %(action)s (%(n)s requests)", told.requests
        ) % values  # fmt: skip
    return (
        ngettext(
            "has no right to: %(action)s of %(names)s (%(n)s request)",
            "has no right to: %(action)s of %(names)s (%(n)s requests)",
            told.requests,
        )
        % values
    )


_OFTEN: Mapping[str, Callable[[_Told], str]] = {
    "client.sign_in_failed": _sign_in_failed,
    "client.sign_in_refused": _sign_in_refused,
    "client.denied": _denied,
}


def _list(names: list[Any]) -> str:
    shown = ", ".join(map(str, names[:NAMES_SHOWN_MAX]))
    return f"{shown}, …" if len(names) > NAMES_SHOWN_MAX else shown
