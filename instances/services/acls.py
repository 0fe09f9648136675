"""Changes of an instance's access rules, through a Kafka admin client. The rules are stored in ZooKeeper.

The audit row is written first and the admin client is called last: a refusal by the brokers rolls everything back.
"""

from __future__ import annotations

import json
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
from instances.services.common import lock_acls
from tenants import access, audit
from tenants.access import fetch
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Message, NotFound, QuotaExceeded
from tenants.models import AuditEntry

DELETED: Final = "acl.deleted"
REF_CHARS_MAX: Final = 300
FILTERS_AT_ONCE_MAX: Final = 100
# Key in a rule's audit values: JSON text of the unchanged rule, if U+0000 had to be replaced in its other values.
EXACT_JSON: Final = "exactly"
NO_NUL: Final = str.maketrans({"\x00": "\N{REPLACEMENT CHARACTER}"})  # not valid in PostgreSQL text


@audit.atomic
def create_acls(*, acting: Actor, instance: Instance, rules: Sequence[AclRule], dry_run: bool = False) -> list[AclRule]:
    """Creates access rules and returns those that are new. They take effect within a second.

    Raises `Invalid` for a rule without effect, and `QuotaExceeded` beyond the limit of an instance.
    """
    for rule in rules:
        require_valid(rule)
    normalized = sorted({replace(rule, host=address_of(rule.host)) for rule in rules})
    return _create(acting, instance, normalized, dry_run=dry_run)


def _create(acting: Actor, instance: Instance, rules: Sequence[AclRule], *, dry_run: bool = False) -> list[AclRule]:
    missing = missing_acls(acting, instance, rules)
    if not missing:
        return []
    after = {"rules": _audit_values(missing)}
    entry = audit.record(acting, "acl.created", acl_ref(instance, missing), None, after, tenant=instance.tenant)
    if not dry_run:
        with audit.in_doubt(entry):
            acl_admin_client.implementation.create(instance.pk, missing)
    return missing


def missing_acls(acting: Actor, instance: Instance, rules: Sequence[AclRule]) -> list[AclRule]:
    """Returns the rules that the instance does not have yet, and locks its rules until the transaction ends.

    Raises `QuotaExceeded` if the missing rules go beyond the limit.
    """
    access.require(acting, Scope.ACLS_WRITE)
    require_reachable(instance)
    lock_acls(instance)
    existing = frozenset(selectors.acl_list(instance))
    missing = [rule for rule in rules if rule not in existing]
    if missing and len(existing) + len(missing) > ACL_RULES_PER_INSTANCE_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("An instance has at most %(n)s access rules."), n=ACL_RULES_PER_INSTANCE_MAX)
        )
    return missing


@audit.atomic
def delete_acls(
    *, acting: Actor, instance: Instance, rule_filter: AclFilter, dry_run: bool = False
) -> tuple[list[AclRule], AuditEntry]:
    """Deletes all rules that match a filter; returns them, and the audit row for an undo.

    Raises `NotFound` if none matches.
    """
    access.require(acting, Scope.ACLS_WRITE)
    require_reachable(instance)
    lock_acls(instance)
    matching_rules = selectors.acl_list(instance, rule_filter)
    if not matching_rules:
        raise NotFound
    before = {"rules": _audit_values(matching_rules)}
    entry = audit.record(acting, DELETED, acl_ref(instance, matching_rules), before, None, tenant=instance.tenant)
    if not dry_run:
        with audit.in_doubt(entry):
            # One filter for each rule, so that no rule is deleted that was created meanwhile and is not in the audit
            # row. Beyond `FILTERS_AT_ONCE_MAX` that takes too long.
            exact = [selectors.exact_filter(rule) for rule in matching_rules]
            acl_admin_client.implementation.delete(
                instance.pk, exact if len(exact) <= FILTERS_AT_ONCE_MAX else [rule_filter]
            )
    return matching_rules, entry


@audit.atomic
def restore_acls(*, acting: Actor, instance: Instance, entry_id: str) -> list[AclRule]:
    """Creates the rules of a deletion again, and returns those that are new. `entry_id` is the audit row of the
    deletion; any other row raises `NotFound`.
    """
    access.require(acting, Scope.ACLS_WRITE)
    rows = AuditEntry.objects.filter(
        tenant_id=instance.tenant_id, action=DELETED, target_id__startswith=f"{instance.pk}/"
    )
    before = fetch(rows, pk=entry_id).before or {}
    return _create(acting, instance, sorted(_rule_of_audit_value(values) for values in before.get("rules", ())))


def acl_ref(instance: Instance, rules: Sequence[AclRule]) -> tuple[str, str]:
    """Returns the audit log's name of rules: `ins-…/acls/topic/orders` if they share a resource, else `ins-…/acls`."""
    resources = {(rule.resource_type, rule.resource_name) for rule in rules}
    shown = "/".join(next(iter(resources))).translate(NO_NUL) if len(resources) == 1 else ""
    return "acl", f"{instance.pk}/acls/{shown}".rstrip("/")[:REF_CHARS_MAX]


def _audit_values(rules: Sequence[AclRule]) -> list[dict[str, str]]:
    """Returns rules in the form of the audit log, from which `_rule_of_audit_value` reads them."""
    return [_audit_value(asdict(rule)) for rule in rules]


def _audit_value(exact: Mapping[str, str]) -> dict[str, str]:
    shown = {name: value.translate(NO_NUL) for name, value in exact.items()}
    return shown if shown == exact else {**shown, EXACT_JSON: json.dumps(exact)}


def _rule_of_audit_value(values: Mapping[str, Any]) -> AclRule:
    if EXACT_JSON in values:
        values = json.loads(values[EXACT_JSON])
    return AclRule(**{name: str(values[name]) for name in AclRule.__dataclass_fields__})
