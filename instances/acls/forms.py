"""Forms of access rules: they parse the input; services and brokers decide."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.acls import constants
from instances.acls.checking import address_of
from instances.acls.interfaces import AccessQuestion, AclRule
from instances.acls.limits import ACL_NAME_BYTES_MAX
from instances.users.naming import principal_of

HOST_CHARS_MAX: Final = 45
EXACTLY, BEGINS, EVERY = "literal", "prefixed", "every"
READ, WRITE, BOTH = "read", "write", "both"

RESOURCE_LABELS: Final = {
    constants.TOPIC: _("Topic"),
    constants.GROUP: _("Consumer group"),
    constants.CLUSTER: _("Whole instance"),
    constants.TRANSACTIONAL_ID: _("Transactional id"),
    constants.USER: _("User"),
}
OPERATION_LABELS: Final = {
    constants.ALL: _("everything"),
    "read": _("read"),
    "write": _("write"),
    "create": _("create"),
    "delete": _("delete"),
    "alter": _("alter"),
    "describe": _("describe"),
    "cluster_action": _("act as a broker"),
    "describe_configs": _("see the configuration"),
    "alter_configs": _("change the configuration"),
    "idempotent_write": _("write idempotently"),
}
PERMISSION_LABELS: Final = {constants.ALLOW: _("may"), constants.DENY: _("may not")}
PATTERN_CHOICES: Final = ((EXACTLY, _("is exactly")), (BEGINS, _("begins with")), (EVERY, _("is any")))
# The resource types of a rule, with their operations (`constants.OPERATIONS_OF`).
RESOURCE_CHOICES: Final = [(kind, RESOURCE_LABELS[kind]) for kind in constants.OPERATIONS_OF]
OPERATION_CHOICES: Final = [(name, OPERATION_LABELS[name]) for name in constants.OPERATIONS]


def _user_field() -> forms.CharField:
    return forms.CharField(
        label=_("User"), max_length=ACL_NAME_BYTES_MAX, help_text=_("The name of a user, or * for everybody.")
    )


class AccessForm(forms.Form):
    """Rights that most clients need, in one form: reading or writing topics, with the group that reading needs."""

    TASKS = ((READ, _("read")), (WRITE, _("write")), (BOTH, _("read and write")))

    user = _user_field()
    task = forms.ChoiceField(label=_("May"), choices=TASKS, initial=READ)
    pattern = forms.ChoiceField(label=_("Topics whose name"), choices=PATTERN_CHOICES, initial=EXACTLY)
    topic = forms.CharField(label=_("Topic"), max_length=ACL_NAME_BYTES_MAX, required=False)
    group = forms.CharField(
        label=_("Consumer group"), max_length=ACL_NAME_BYTES_MAX, required=False,
        help_text=_("Reading takes one. A name that ends with * means every group that begins so."),
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if values.get("pattern") != EVERY and not values.get("topic"):
            self.add_error("topic", _("Say which one."))
        if values.get("task") in (READ, BOTH) and not values.get("group"):
            self.add_error("group", _("Say which one, or * for any."))
        return values

    def rules(self) -> list[AclRule]:
        """Returns the rules; reading and writing include describing."""
        values = self.cleaned_data
        name, pattern = _pattern(values["topic"], values["pattern"])
        tasks = (READ, WRITE) if values["task"] == BOTH else (values["task"],)
        result = [_allow_rule(values["user"], constants.TOPIC, name, pattern, task) for task in tasks]
        if values["task"] != WRITE:
            group, is_prefix = values["group"], values["group"].endswith("*")
            kind = EVERY if group == "*" else BEGINS if is_prefix else EXACTLY
            name, pattern = _pattern(group[:-1] if is_prefix else group, kind)
            result.append(_allow_rule(values["user"], constants.GROUP, name, pattern, READ))
        return result


class RuleForm(forms.Form):
    """One rule, as in Kafka."""

    user = _user_field()
    permission = forms.ChoiceField(label=_("May or may not"), choices=list(PERMISSION_LABELS.items()))
    operation = forms.ChoiceField(label=_("Operation"), choices=OPERATION_CHOICES, initial="read")
    resource_type = forms.ChoiceField(label=_("On a"), choices=RESOURCE_CHOICES)
    pattern = forms.ChoiceField(label=_("Whose name"), choices=PATTERN_CHOICES, initial=EXACTLY)
    resource_name = forms.CharField(label=_("Name"), max_length=ACL_NAME_BYTES_MAX, required=False)
    host = forms.CharField(
        label=_("From"), max_length=HOST_CHARS_MAX, required=False,
        help_text=_("One IP address. Empty: from anywhere."),
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        needs_name = values.get("resource_type") != constants.CLUSTER and values.get("pattern") != EVERY
        if needs_name and not values.get("resource_name"):
            self.add_error("resource_name", _("Say which one."))
        return values

    def rule(self) -> AclRule:
        values = self.cleaned_data
        if values["resource_type"] == constants.CLUSTER:
            name, pattern = constants.CLUSTER_NAME, constants.LITERAL
        else:
            name, pattern = _pattern(values["resource_name"], values["pattern"])
        return AclRule(
            resource_type=values["resource_type"],
            resource_name=name,
            pattern_type=pattern,
            principal=principal_of(values["user"]),
            host=values["host"] or constants.WILDCARD,
            operation=values["operation"],
            permission=values["permission"],
        )


class ExactRuleForm(forms.Form):
    """A rule that is listed on the page. A Kafka client may have created it, so its names are not checked."""

    resource_type = forms.ChoiceField(choices=[(name, name) for name in constants.RESOURCE_TYPES])
    resource_name = forms.CharField(strip=False)
    pattern_type = forms.ChoiceField(choices=[(name, name) for name in constants.PATTERN_TYPES])
    principal = forms.CharField(strip=False)
    host = forms.CharField(strip=False)
    operation = forms.ChoiceField(choices=[(name, name) for name in constants.OPERATIONS])
    permission = forms.ChoiceField(choices=[(name, name) for name in constants.PERMISSIONS])

    def rule(self) -> AclRule:
        return AclRule(**{name: self.cleaned_data[name] for name in self.fields})


class QuestionForm(forms.Form):
    """Query for the decision whether a user may do an operation."""

    user = forms.CharField(label=_("User"), max_length=ACL_NAME_BYTES_MAX)
    operation = forms.ChoiceField(label=_("Operation"), choices=OPERATION_CHOICES[1:], initial="read")
    resource_type = forms.ChoiceField(label=_("On a"), choices=RESOURCE_CHOICES)
    resource_name = forms.CharField(label=_("Name"), max_length=ACL_NAME_BYTES_MAX, required=False)
    host = forms.CharField(label=_("From"), max_length=HOST_CHARS_MAX, required=False)

    def clean_host(self) -> str:
        try:
            return address_of(self.cleaned_data["host"] or constants.WILDCARD)
        except ValueError:
            raise forms.ValidationError(_("One IP address. Empty: from anywhere.")) from None

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        kind, operation = values.get("resource_type"), values.get("operation")
        if kind and operation and operation not in constants.OPERATIONS_OF[kind]:
            self.add_error("operation", _("Kafka never asks for this of such a resource."))
        if kind and kind != constants.CLUSTER and not values.get("resource_name"):
            self.add_error("resource_name", _("Say which one."))
        return values

    def question(self) -> AccessQuestion:
        values = self.cleaned_data
        is_cluster = values["resource_type"] == constants.CLUSTER
        return AccessQuestion(
            principal=principal_of(values["user"]),
            host=values["host"],
            operation=values["operation"],
            resource_type=values["resource_type"],
            resource_name=constants.CLUSTER_NAME if is_cluster else values["resource_name"],
        )


def _pattern(name: str, pattern: str) -> tuple[str, str]:
    """Returns name and pattern type as Kafka stores them: `*` is every resource of a type."""
    return (constants.WILDCARD, constants.LITERAL) if pattern == EVERY else (name, pattern)


def _allow_rule(user: str, kind: str, name: str, pattern: str, operation: str) -> AclRule:
    return AclRule(
        resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal_of(user),
        host=constants.WILDCARD, operation=operation, permission=constants.ALLOW,
    )  # fmt: skip
