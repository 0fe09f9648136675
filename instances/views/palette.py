"""Sources of the search palette for instances: their pages and actions, and their topics and groups by name.

Names of topics and groups come from brokers: of the instance whose page is open, else of a few instances, and for at
most `NAMES_TIMEOUT_S`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import reduce

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext as _

from instances import selectors
from instances.groups import selectors as groups_selectors
from instances.lifecycle.phases import CHANGEABLE, REACHABLE
from instances.models import Instance
from instances.templatetags.groups import group_url
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.palette import Entry, PartialResult, Search, add_source, entry_of, permitted

INSTANCES_MAX = 8
INSTANCES_QUERIED_MAX = 5
NAMES_PER_INSTANCE_MAX = 8
NAMES_TIMEOUT_S = 1.5


def register() -> None:
    """Registers both sources with the palette."""
    add_source(page_entries)
    add_source(name_entries, "names")


def page_entries(search: Search) -> Iterable[Entry]:
    """Yields pages and actions of the instance whose page is open, other instances, and their pages in a search."""
    acting = search.actor
    if acting.tenant is None or not access.permits(acting, Scope.INSTANCES_READ):
        return
    for instance in _instances(search):
        is_open = instance.pk == search.instance_id
        yield from _entries_of_instance(search, instance, with_pages=is_open or bool(search.words))
    common_pages = (
        (_("Instances"), _("Page"), "page-instances", Scope.INSTANCES_READ),
        (_("Create instance"), _("Action"), "page-instance-create", Scope.INSTANCES_WRITE),
    )
    yield from permitted(acting, common_pages)


def name_entries(search: Search) -> list[Entry]:
    """Returns topics and groups by name. Raises `PartialResult` if brokers do not answer in time."""
    acting = search.actor
    if not search.words or acting.tenant is None or not access.permits(acting, Scope.INSTANCES_READ):
        return []
    result: list[Entry] = []
    is_complete = True
    deadline_s = time.monotonic() + NAMES_TIMEOUT_S
    reachable = [instance for instance in _queried_instances(search) if instance.current_phase in REACHABLE]
    for source, instance in [(source, instance) for instance in reachable for source in (_topics, _groups)]:
        if time.monotonic() > deadline_s:
            is_complete = False
            break
        try:
            result += source(search, instance)
        except DomainError:
            is_complete = False
    if not is_complete:
        raise PartialResult(result)
    return result


def _instances(search: Search) -> list[Instance]:
    """Returns the instance whose page is open, some with one of the words in name or id, and the latest ones."""
    assert search.actor.tenant is not None
    rows = selectors.instance_list(search.actor.tenant)
    matching = reduce(Q.__or__, (Q(name__icontains=word) | Q(pk__icontains=word) for word in search.words), Q(pk=""))
    choices = (rows.filter(pk=search.instance_id), rows.filter(matching)[:INSTANCES_MAX], rows[:INSTANCES_MAX])
    return list({instance.pk: instance for choice in choices for instance in choice}.values())


def _queried_instances(search: Search) -> list[Instance]:
    """Returns the instances whose brokers are queried for names: that of the open page, else the latest few."""
    assert search.actor.tenant is not None
    rows = selectors.instance_list(search.actor.tenant)
    return list(rows.filter(pk=search.instance_id)) or list(rows[:INSTANCES_QUERIED_MAX])


def _entries_of_instance(search: Search, instance: Instance, *, with_pages: bool) -> Iterable[Entry]:
    page, act = _("Page"), _("Action")
    is_reachable, is_changeable = instance.current_phase in REACHABLE, instance.current_phase in CHANGEABLE
    overview_entry = entry_of(instance.name, f"{_('Instance')} {instance.pk}", "page-instance", instance.pk)
    if overview_entry is not None:
        yield overview_entry
    if not with_pages:
        return
    pages = [
        (_("Topics"), page, "page-topics", Scope.TOPICS_READ, is_reachable),
        (_("Create topic"), act, "page-topic-create", Scope.TOPICS_WRITE, is_reachable),
        (_("Groups"), page, "page-groups", Scope.GROUPS_READ, is_reachable),
        (_("Transactions"), page, "page-transactions", Scope.GROUPS_READ, is_reachable),
        (_("Users"), page, "page-users", Scope.USERS_READ, is_reachable),
        (_("Access"), page, "page-acls", Scope.ACLS_READ, is_reachable),
        (_("Quotas"), page, "page-quotas", Scope.QUOTAS_READ, is_reachable),
        (_("Storage"), page, "page-storage", Scope.TOPICS_READ, is_reachable),
        (_("Throttle"), page, "page-throttle", Scope.INSTANCES_READ, is_reachable),
        (_("Usage & cost"), page, "page-usage", Scope.USAGE_READ, True),
        (_("Resize"), act, "page-instance-resize", Scope.INSTANCES_WRITE, is_changeable),
        (_("Instance settings"), page, "page-instance-settings", Scope.INSTANCES_READ, is_changeable),
        (_("Delete"), act, "page-instance-delete", Scope.INSTANCES_WRITE, is_changeable),
    ]
    available = [
        (f"{instance.name}: {label}", hint, name, scope)
        for label, hint, name, scope, is_available in pages
        if is_available
    ]
    yield from permitted(search.actor, available, instance.pk)


def _topics(search: Search, instance: Instance) -> list[Entry]:
    if not access.permits(search.actor, Scope.TOPICS_READ):
        return []
    hint = f"{_('Topic')} {instance.name}"
    entries = (
        Entry(label=name, hint=hint, url=reverse("page-topic", args=[instance.pk, name]))
        for name in _names_with_any_word(search, selectors.topic_names(instance))
    )
    return _best(search, entries)


def _groups(search: Search, instance: Instance) -> list[Entry]:
    if not access.permits(search.actor, Scope.GROUPS_READ):
        return []
    hint = f"{_('Group')} {instance.name}"
    entries = (
        Entry(label=name, hint=hint, url=group_url("page-group", instance.pk, name))
        for name in _names_with_any_word(search, groups_selectors.group_names(instance))
    )
    return _best(search, entries)


def _names_with_any_word(search: Search, names: Iterable[str]) -> Iterable[str]:
    """Yields names with one of the words; `Search.matches` checks for all words in these only."""
    return (name for name in names if any(word in name.lower() for word in search.words))


def _best(search: Search, entries: Iterable[Entry]) -> list[Entry]:
    return sorted(filter(search.matches, entries), key=search.rank)[:NAMES_PER_INSTANCE_MAX]
