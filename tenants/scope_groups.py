"""Groups of scopes for display, and presets for tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from tenants.choices import Scope


@dataclass(frozen=True, slots=True)
class ScopeGroup:
    """Scopes about one kind of object. Each scope is in one group."""

    name: str
    label: str | Promise
    scopes: tuple[Scope, ...]


@dataclass(frozen=True, slots=True)
class ScopePreset:
    """Scopes for a typical program. A token gets only those that its creator may grant."""

    name: str
    label: str | Promise
    help_text: str | Promise
    scopes: frozenset[str]


GROUPS = (
    ScopeGroup(
        "instances", _("Instances"), (Scope.INSTANCES_READ, Scope.INSTANCES_WRITE, Scope.USAGE_READ, Scope.QUOTAS_READ,
                                      Scope.QUOTAS_WRITE),
    ),
    ScopeGroup(
        "data", _("Topics and messages"), (Scope.TOPICS_READ, Scope.TOPICS_WRITE, Scope.MESSAGES_READ,
                                           Scope.MESSAGES_WRITE, Scope.MESSAGES_UNMASK, Scope.ARCHIVES_READ,
                                           Scope.ARCHIVES_WRITE),
    ),
    ScopeGroup(
        "clients", _("Groups and clients"), (Scope.GROUPS_READ, Scope.GROUPS_WRITE, Scope.CLIENTS_READ,
                                             Scope.CLIENTS_WRITE),
    ),
    ScopeGroup(
        "access", _("Users and access"), (Scope.USERS_READ, Scope.USERS_WRITE, Scope.ACLS_READ, Scope.ACLS_WRITE),
    ),
    ScopeGroup(
        "account", _("Account"), (Scope.TENANT_READ, Scope.TENANT_WRITE, Scope.MEMBERS_READ, Scope.MEMBERS_WRITE,
                                  Scope.TOKENS_READ, Scope.TOKENS_WRITE, Scope.AUDIT_READ),
    ),
    ScopeGroup("billing", _("Billing"), (Scope.BILLING_READ, Scope.BILLING_WRITE)),
    ScopeGroup("platform", _("Platform"), (Scope.OPERATOR,)),
)  # fmt: skip

PRESETS = (
    ScopePreset(
        "read_only", _("Read only"), _("Sees everything you see, and changes nothing."),
        frozenset(scope.value for scope in Scope if scope.value.endswith(":read")),
    ),
    ScopePreset(
        "produce_and_consume", _("Produce and consume"), _("Reads and sends messages over REST, and sees lags."),
        frozenset({Scope.INSTANCES_READ, Scope.TOPICS_READ, Scope.MESSAGES_READ, Scope.MESSAGES_WRITE,
                   Scope.GROUPS_READ}),
    ),
    ScopePreset(
        "manage_topics", _("Manage topics"), _("Makes, changes and deletes topics; users and their access rules, too."),
        frozenset({Scope.INSTANCES_READ, Scope.TOPICS_READ, Scope.TOPICS_WRITE, Scope.GROUPS_READ, Scope.USERS_READ,
                   Scope.USERS_WRITE, Scope.ACLS_READ, Scope.ACLS_WRITE}),
    ),
    ScopePreset(
        "everything", _("Everything"), _("All that you may do yourself, without running the platform."),
        frozenset(scope.value for scope in Scope if scope is not Scope.OPERATOR),
    ),
)  # fmt: skip


def in_words(scopes: Iterable[str]) -> list[tuple[str | Promise, Sequence[str | Promise]]]:
    """Returns each group's label with the labels of those `scopes` that belong to it, without scopes that no longer
    exist.
    """
    scope_values = set(scopes)
    labels_by_group = (
        (group.label, [scope.label for scope in group.scopes if scope.value in scope_values]) for group in GROUPS
    )
    return [(label, words) for label, words in labels_by_group if words]


def preset_scopes(name: str, granted: Iterable[str]) -> list[str]:
    """Returns the scopes of a preset that an actor with `granted` may grant, sorted. Raises `KeyError`."""
    by_name = {preset.name: preset for preset in PRESETS}
    return sorted(by_name[name].scopes & frozenset(granted))
