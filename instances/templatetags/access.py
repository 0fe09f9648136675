"""Template tags and filters for pages of users and access rules."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import template
from django.forms import BoundField
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from instances.acls import constants
from instances.acls.forms import OPERATION_LABELS, PERMISSION_LABELS, RESOURCE_LABELS
from instances.acls.interfaces import AccessDecision, AclRule
from instances.acls.selectors import ResourceRules
from instances.templatetags.groups import state_pill
from instances.users.interfaces import UserDescription
from instances.users.naming import PRINCIPAL_PREFIX
from instances.users.selectors import UserState, state_of
from tenants.templatetags.console import field

register = template.Library()

STATES = {
    UserState.ACTIVE: ("running", gettext_lazy("Active")),
    UserState.DISABLED: ("suspended", gettext_lazy("Disabled")),
    UserState.EXPIRED: ("failed", gettext_lazy("Expired")),
}
REASONS = {
    "superuser": gettext_lazy("The user has full access: no rule is looked at."),
    "allowed_by_rule": gettext_lazy("This rule allows it:"),
    "denied_by_rule": gettext_lazy("This rule forbids it, and what forbids wins:"),
    "not_allowed": gettext_lazy("There are rules about it, and none allows this."),
    "no_rules_allowed": gettext_lazy("There is no rule about it, and then everybody may."),
    "no_rules_denied": gettext_lazy("There is no rule about it, and then nobody may."),
    "cluster_needs_rule": gettext_lazy("Administering the instance takes a rule, also while it is open to every user."),
}


@register.simple_tag
def user_url(page: str, instance_id: str, name: str) -> str:
    """Returns the address of a user's page. The name is in the query, because it may have slashes and `..`."""
    return f"{reverse(page, args=[instance_id])}?{urlencode({'user': name})}"


@register.inclusion_tag("console/parts/field.html")
def user_field(bound: BoundField, instance_id: str, **attributes: str) -> dict[str, Any]:
    """Renders a field that completes user names (the page has the `user-names` list)."""
    names = reverse("page-user-names", args=[instance_id])
    return field(
        bound, **attributes, list="user-names", autocomplete="off", hx_get=names, hx_target="#user-names",
        hx_trigger="input changed delay:150ms",
    )  # fmt: skip


@register.simple_tag
def user_pill(user: UserDescription) -> SafeString:
    """Renders the state of a user as shape and label, never as colour alone."""
    return state_pill(*STATES[state_of(user)])


@register.filter
def principal_label(principal: str) -> str:
    """Returns the text for a principal."""
    name = principal.removeprefix(PRINCIPAL_PREFIX)
    return _("everybody") if name == constants.WILDCARD else name


@register.filter
def operation(rule: AclRule) -> str:
    return str(OPERATION_LABELS.get(rule.operation, rule.operation))


@register.filter
def permission(rule: AclRule) -> str:
    return str(PERMISSION_LABELS.get(rule.permission, rule.permission))


@register.filter
def origin(rule: AclRule) -> str:
    """Returns the text for the host of a rule."""
    return _("any address") if rule.host == constants.WILDCARD else rule.host


@register.filter
def resource(rules: ResourceRules | AclRule) -> str:
    """Returns the text for the resource of rules."""
    kind = RESOURCE_LABELS.get(rules.resource_type, rules.resource_type)
    if rules.resource_type == constants.CLUSTER:
        return str(kind)
    if rules.pattern_type == constants.PREFIXED:
        return _("%(kind)s: names that begin with %(name)s") % {"kind": kind, "name": rules.resource_name}
    if rules.resource_name == constants.WILDCARD:
        return _("%(kind)s: every one") % {"kind": kind}
    return _("%(kind)s %(name)s") % {"kind": kind, "name": rules.resource_name}


@register.filter
def reason(decision: AccessDecision) -> str:
    """Returns the text for the reason of an access decision."""
    return str(REASONS.get(decision.reason, decision.reason))
