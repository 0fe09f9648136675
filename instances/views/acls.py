"""Page of an instance's access rules by resource, with forms for presets, for single rules, and for a test."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from instances import services
from instances.acls import selectors
from instances.acls.forms import AccessForm, ExactRuleForm, QuestionForm, RuleForm
from instances.acls.interfaces import AclFilter, AclRule
from instances.acls.selectors import ResourceRules
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from instances.users.naming import principal_of
from instances.users.selectors import user_names
from instances.views.common import instance_page, render_instance
from tenants import access
from tenants.api.pages import page_of_items
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.forms import AuditFilterForm
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.base import add_errors, wording

# Fields of the forms by the pointers of services.
RULE_FORM_FIELDS = {"/principal": "user", "/resource_name": "resource_name", "/operation": "operation", "/host": "host"}
ACCESS_FORM_FIELDS = {"/principal": "user", "/resource_name": "topic"}


@instance_page(Scope.ACLS_READ)
@require_http_methods(["GET", "POST"])
def acls_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows rules by resource; a POST creates rules, `?ask` tests a permission, `?user` shows the rules of one user."""
    part = request.POST.get("part", "") if request.method == "POST" else ""
    user_name = "" if "ask" in request.GET else request.GET.get("user", "")
    initial = {"user": user_name}  # three forms on a page need different ids
    access_form = AccessForm(request.POST if part == "access" else None, initial=initial, auto_id="give-%s")
    rule_form = RuleForm(request.POST if part == "rule" else None, initial=initial, auto_id="rule-%s")
    if (
        part == "access"
        and access_form.is_valid()
        and _create_rules(request, instance, access_form, access_form.rules(), ACCESS_FORM_FIELDS)
    ):
        return redirect("page-acls", instance.pk)
    if (
        part == "rule"
        and rule_form.is_valid()
        and _create_rules(request, instance, rule_form, [rule_form.rule()], RULE_FORM_FIELDS)
    ):
        return redirect("page-acls", instance.pk)
    is_reachable = instance.current_phase in REACHABLE
    question_form = QuestionForm(request.GET if "ask" in request.GET else None, initial=initial, auto_id="test-%s")
    context: dict[str, Any] = {
        "giving": access_form,
        "adding": rule_form,
        "ask": question_form,
        "part": part,
        "about": user_name,
        "everyone": selectors.allows_everyone(instance),
        "user_names": user_names(instance) if access.permits(request.actor, Scope.USERS_READ) else (),  # type: ignore[attr-defined]
    }
    if is_reachable:
        context |= _resources_context(request, instance, user_name)
        if question_form.is_valid():
            context["decision"] = selectors.access_decision(instance, question_form.question())
    return render_instance(
        request, "instances/acls.html", instance, context,
        section="acls", crumbs=[(_("Access"), None)], status=422 if part else 200,
    )  # fmt: skip


def _create_rules(
    request: HttpRequest, instance: Instance, form: AccessForm | RuleForm, rules: list[AclRule], fields: dict[str, str]
) -> bool:
    """Creates the rules; returns False if they are refused, with the error in the form."""
    acting = request.actor  # type: ignore[attr-defined]
    access.require(acting, Scope.ACLS_WRITE)
    try:
        created = services.create_acls(acting=acting, instance=instance, rules=rules)
    except DomainError as error:
        add_errors(form, error, fields)
        return False
    if created:
        text = ngettext("%(n)s access rule is in force.", "%(n)s access rules are in force.", len(created))
        messages.success(request, text % {"n": len(created)})
    else:
        messages.success(request, _("That was in force already."))
    return True


def _resources_context(request: HttpRequest, instance: Instance, user_name: str) -> dict[str, Any]:
    """Returns one page of resources with their rules, of one user or all."""
    rule_filter = AclFilter(principal=principal_of(user_name)) if user_name else AclFilter()
    search = AuditFilterForm(request.GET)
    token = search.cleaned_data["page_token"] if search.is_valid() else ""
    rows, next_token = page_of_items(
        selectors.by_resource(selectors.acl_list(instance, rule_filter)),
        key=_key, page_size=PAGE_SIZE_DEFAULT, page_token=token or None, binding=f"acls {instance.pk} {user_name}",
    )  # fmt: skip
    return {"resources": rows, "next_token": next_token, "is_first": not token}


def _key(group: ResourceRules) -> str:
    """Returns the sort key of a resource, which page tokens contain: a long name is cut, and a hash keeps it unique."""
    text = f"{group.resource_type} {group.resource_name}"
    return f"{text[:200]} {hashlib.sha256(f'{text} {group.pattern_type}'.encode()).hexdigest()}"


@instance_page(Scope.ACLS_WRITE)
@require_POST
def delete_rule(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Deletes one rule and offers an undo."""
    form = ExactRuleForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("There is no such rule."))
        return redirect("page-acls", instance.pk)
    try:
        _rules, entry = services.delete_acls(
            acting=request.actor, instance=instance, rule_filter=selectors.exact_filter(form.rule())  # type: ignore[attr-defined]
        )  # fmt: skip
    except DomainError as error:
        messages.error(request, wording(error))
        return redirect("page-acls", instance.pk)
    back = f"{reverse('page-acl-undo', args=[instance.pk])}?{urlencode({'entry': entry.pk})}"
    messages.info(request, _("The rule is deleted."), extra_tags=f"undo {back}")
    return redirect("page-acls", instance.pk)


@instance_page(Scope.ACLS_WRITE)
@require_POST
def undo(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Restores the rules of a deletion."""
    try:
        services.restore_acls(
            acting=request.actor, instance=instance, entry_id=request.GET.get("entry", "")  # type: ignore[attr-defined]
        )  # fmt: skip
        messages.success(request, _("The rule is back."))
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-acls", instance.pk)
