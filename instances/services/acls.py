"""Access rules of an instance, changed through the data plane's own admin client. They live in ZooKeeper.

The audit row is written first and the admin client is called last: a refusal by the brokers rolls everything back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from django.utils.translation import gettext_noop

from instances.access import require_reachable
from instances.acls import selectors
from instances.acls.checking import address_of, require_valid
from instances.acls.interfaces import AclFilter, AclRule, acl_admin_client
from instances.acls.limits import ACL_RULES_PER_INSTANCE_MAX
from instances.models import Instance
from instances.services.common import hold_acls
from tenants import access, audit
from tenants.access import fetch
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Message, NotFound, QuotaExceeded
from tenants.models import AuditEntry

DELETED: Final = "acl.deleted"
REF_CHARS_MAX: Final = 300
FILTERS_AT_ONCE_MAX: Final = 100
NO_NUL: Final = str.maketrans({"\x00": "\N{REPLACEMENT CHARACTER}"})  # PostgreSQL has no text with it


@audit.atomic
def create_acls(*, acting: Actor, instance: Instance, rules: Sequence[AclRule], dry_run: bool = False) -> list[AclRule]:
    """Make access rules; returns those that were not there before. Brokers act on them within a second.

    Raises `Invalid` for a rule that decides nothing, and `QuotaExceeded` where the instance has as many as it may.
    """
    for rule in rules:
        require_valid(rule)
    wanted = sorted({replace(rule, host=address_of(rule.host)) for rule in rules})
    return _create(acting, instance, wanted, dry_run=dry_run)


def _create(acting: Actor, instance: Instance, wanted: Sequence[AclRule], *, dry_run: bool = False) -> list[AclRule]:
    new = missing_acls(acting, instance, wanted)
    if not new:
        return []
    after = {"rules": _kept(new)}
    entry = audit.record(acting, "acl.created", acl_ref(instance, new), None, after, tenant=instance.tenant)
    if not dry_run:
        with audit.in_doubt(entry):
            acl_admin_client.it.create(instance.pk, new)
    return new


def missing_acls(acting: Actor, instance: Instance, wanted: Sequence[AclRule]) -> list[AclRule]:
    """Rules that the instance does not have yet. Nobody else changes its rules until the transaction ends.

    Raises `QuotaExceeded` where there is no room for them.
    """
    access.require(acting, Scope.ACLS_WRITE)
    require_reachable(instance)
    hold_acls(instance)
    present = frozenset(selectors.acl_list(instance))
    new = [rule for rule in wanted if rule not in present]
    if new and len(present) + len(new) > ACL_RULES_PER_INSTANCE_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("An instance has at most %(n)s access rules."), n=ACL_RULES_PER_INSTANCE_MAX)
        )
    return new


@audit.atomic
def delete_acls(
    *, acting: Actor, instance: Instance, wanted: AclFilter, dry_run: bool = False
) -> tuple[list[AclRule], AuditEntry]:
    """Delete every rule that a filter means; returns them, and the audit row that an undo takes.

    Raises `NotFound` where it means none.
    """
    access.require(acting, Scope.ACLS_WRITE)
    require_reachable(instance)
    hold_acls(instance)
    meant = selectors.acl_list(instance, wanted)
    if not meant:
        raise NotFound
    before = {"rules": _kept(meant)}
    entry = audit.record(acting, DELETED, acl_ref(instance, meant), before, None, tenant=instance.tenant)
    if not dry_run:
        with audit.in_doubt(entry):
            # One by one, lest a rule go that was made meanwhile and that no row tells of; of many, that is too long.
            exact = [selectors.exactly(rule) for rule in meant]
            acl_admin_client.it.delete(instance.pk, exact if len(exact) <= FILTERS_AT_ONCE_MAX else [wanted])
    return meant, entry


@audit.atomic
def restore_acls(*, acting: Actor, instance: Instance, entry_id: str) -> list[AclRule]:
    """Make the rules again that a deletion took, named by its audit row. Raises `NotFound` for another row."""
    access.require(acting, Scope.ACLS_WRITE)
    rows = AuditEntry.objects.filter(
        tenant_id=instance.tenant_id, action=DELETED, target_id__startswith=f"{instance.pk}/"
    )
    kept = fetch(rows, pk=entry_id).before or {}
    return _create(acting, instance, sorted(_rule(one) for one in kept.get("rules", ())))


def acl_ref(instance: Instance, rules: Sequence[AclRule]) -> tuple[str, str]:
    """How the audit log names rules: by their resource, `ins-…/acls/topic/orders`, where they have one in common."""
    resources = {(rule.resource_type, rule.resource_name) for rule in rules}
    shown = "/".join(next(iter(resources))).translate(NO_NUL) if len(resources) == 1 else ""
    return "acl", f"{instance.pk}/acls/{shown}".rstrip("/")[:REF_CHARS_MAX]


def _kept(rules: Sequence[AclRule]) -> list[dict[str, str]]:
    """As a row of the audit log holds them."""
    return [{name: value.translate(NO_NUL) for name, value in asdict(rule).items()} for rule in rules]


def _rule(kept: Mapping[str, Any]) -> AclRule:
    return AclRule(**{name: str(kept[name]) for name in AclRule.__dataclass_fields__})
