"""Queries of access rules as stored by the brokers, and of the decision for a user with the deciding rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from instances.access import require_reachable
from instances.acls.constants import MATCH, WILDCARD
from instances.acls.interfaces import AccessDecision, AccessQuestion, AclFilter, AclRule, acl_admin_client
from instances.models import Instance
from instances.users import selectors as user_selectors
from instances.users.naming import PRINCIPAL_PREFIX
from tenants.errors import NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules:
    """All rules of one pattern."""

    resource_type: str
    resource_name: str
    pattern_type: str
    rules: tuple[AclRule, ...]


def acl_list(instance: Instance, rule_filter: AclFilter | None = None) -> list[AclRule]:
    """Returns the rules by resource, then principal. Raises `Conflict` while there are no brokers, and
    `Unavailable`.
    """
    require_reachable(instance)
    return sorted(acl_admin_client.implementation.rules(instance.pk, rule_filter or AclFilter()))


def by_resource(rules: Sequence[AclRule]) -> list[ResourceRules]:
    """Returns the rules grouped by pattern."""
    return [
        ResourceRules(resource_type=kind, resource_name=name, pattern_type=pattern, rules=tuple(group))
        for (kind, name, pattern), group in groupby(
            sorted(rules), key=lambda rule: (rule.resource_type, rule.resource_name, rule.pattern_type)
        )
    ]


def exact_filter(rule: AclRule) -> AclFilter:
    """Returns the filter that matches exactly one rule."""
    return AclFilter(
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
    )


def allows_everyone(instance: Instance) -> bool:
    """True if the instance is open: every user may use a resource without rules (`allow.everyone.if.no.acl.found`)."""
    return bool(instance.settings_in_force["allow_everyone_if_no_acl"])


def access_decision(instance: Instance, question: AccessQuestion) -> AccessDecision:
    """Returns a broker's decision by the current rules. A user that does not exist may still have rules."""
    relevant = AclFilter(resource_type=question.resource_type, resource_name=question.resource_name, pattern_type=MATCH)
    return acl_admin_client.implementation.decide(
        acl_list(instance, relevant),
        question,
        is_superuser=_is_superuser(instance, question.principal),
        allow_everyone=allows_everyone(instance),
    )


def _is_superuser(instance: Instance, principal: str) -> bool:
    name = principal.removeprefix(PRINCIPAL_PREFIX)
    if name in (principal, WILDCARD, ""):
        return False
    try:
        return user_selectors.user(instance, name).superuser
    except NotFound:
        return False
