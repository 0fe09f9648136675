"""Console pages of alert rules: their state, their firings and their forms."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_http_methods, require_POST

from instances import access as instances_access
from notifications import access as notifications_access
from notifications.alerts import services, wording
from notifications.forms import AlertRuleChangeForm, AlertRuleForm
from notifications.models import AlertFiring, AlertKind, AlertRule
from tenants import access
from tenants.api.pages import page_of_rows
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.asking import Question, ask_first
from tenants.views.base import add_errors, console_page, render_page
from tenants.views.base import wording as refusal_in_words

RESULTS = {
    "pause": gettext_noop("%(name)s is paused."),
    "resume": gettext_noop("%(name)s is watched again."),
    "delete": gettext_noop("%(name)s is deleted. Its firings stay in the history."),
}


@console_page(Scope.USAGE_READ)
@require_http_methods(["GET", "POST"])
def alert_rules_page(request: HttpRequest) -> HttpResponse:
    """Shows all rules, the form for a new one, and the history, latest first, 50 on a page."""
    acting = request.actor  # type: ignore[attr-defined]
    form = AlertRuleForm(
        request.POST or None, instances=instances_access.names_of(access.tenant_of(acting))
    )  # fmt: skip
    if form.is_bound and form.is_valid():
        values = dict(form.cleaned_data)
        try:
            instance = instances_access.instance(acting, values.pop("instance_id"))
            rule = services.create_rule(acting=acting, instance=instance, **values)
            messages.success(request, _("%(name)s is watched every minute.") % {"name": rule.name})
            return redirect("page-alert-rules")
        except DomainError as error:
            add_errors(form, error)
    rules = notifications_access.alert_rules_of(acting).select_related("instance").order_by("created_at", "id")
    context = {
        "rows": [_row(rule) for rule in rules], "form": form,
        **_history(request, notifications_access.firings_of(acting), "alert firings"),
    }  # fmt: skip
    return render_page(
        request, "notifications/alert_rules.html", context, section="alert-rules", crumbs=[(_("Alert rules"), None)],
        status=422 if form.is_bound else 200,
    )  # fmt: skip


@console_page(Scope.USAGE_READ)
@require_http_methods(["GET", "POST"])
def alert_rule_page(request: HttpRequest, rule_id: str) -> HttpResponse:
    """Shows one rule with its history and the form that changes it."""
    acting = request.actor  # type: ignore[attr-defined]
    rule = notifications_access.alert_rule(acting, rule_id)
    form = AlertRuleChangeForm(request.POST or None, initial={name: getattr(rule, name) for name in _fields(rule)})
    for name in set(form.fields) - set(_fields(rule)):
        del form.fields[name]
    if form.is_bound and form.is_valid():
        try:
            with transaction.atomic():
                locked = notifications_access.alert_rule(acting, rule_id, lock=True)
                services.change_rule(acting=acting, rule=locked, changes=_submitted_values(form))
            messages.success(request, _("%(name)s is changed.") % {"name": form.cleaned_data["name"]})
            return redirect("page-alert-rule", rule_id)
        except DomainError as error:
            if error.http_status == 404:
                raise
            add_errors(form, error)
    context = {
        "row": _row(rule), "rule": rule, "form": form,
        **_history(request, notifications_access.firings_of_rule(rule), f"firings {rule.pk}"),
    }  # fmt: skip
    crumbs = [(_("Alert rules"), reverse("page-alert-rules")), (rule.name, None)]
    return render_page(
        request, "notifications/alert_rule.html", context, section="alert-rules", crumbs=crumbs,
        status=422 if form.is_bound else 200,
    )  # fmt: skip


@console_page(Scope.INSTANCES_WRITE)
@require_POST
def act_on_alert_rule(request: HttpRequest, rule_id: str, act: str) -> HttpResponse:
    """Pauses, resumes or deletes a rule; deletion asks for confirmation."""
    acting = request.actor  # type: ignore[attr-defined]
    question_page = None
    if act == "delete":
        question_page = _ask_to_delete(request, notifications_access.alert_rule(acting, rule_id))
    if question_page is not None:
        return question_page
    try:
        with transaction.atomic():
            rule = notifications_access.alert_rule(acting, rule_id, lock=True)
            if act == "delete":
                services.delete_rule(acting=acting, rule=rule)
            else:
                services.change_rule(acting=acting, rule=rule, changes={"is_enabled": act == "resume"})
        messages.success(request, _(RESULTS[act]) % {"name": rule.name})
    except DomainError as error:
        if error.http_status == 404:
            raise
        messages.error(request, refusal_in_words(error))
        return redirect("page-alert-rule", rule_id)
    return redirect("page-alert-rules") if act == "delete" else redirect("page-alert-rule", rule_id)


def _ask_to_delete(request: HttpRequest, rule: AlertRule) -> HttpResponse | None:
    question = Question(
        title=_("Delete alert rule %(name)s?") % {"name": rule.name},
        consequence=_("It is not watched any more. What fires is resolved; the history stays."),
        action_label=_("Delete"),
        back=reverse("page-alert-rule", args=[rule.pk]),
    )
    crumbs = [(_("Alert rules"), reverse("page-alert-rules")), (rule.name, question.back)]
    return ask_first(request, question, section="alert-rules", crumbs=crumbs)


def _fields(rule: AlertRule) -> list[str]:
    """Returns the fields of a rule of this kind."""
    more = {AlertKind.CONSUMER_LAG: ["group_id", "topic"], AlertKind.THROTTLED_SHARE: ["window_minutes"]}
    return ["name", "threshold", "for_minutes", *more.get(AlertKind(rule.kind), [])]


def _submitted_values(form: AlertRuleChangeForm) -> dict[str, Any]:
    """Returns the changes; an empty window keeps the stored one."""
    return {name: value for name, value in form.cleaned_data.items() if name != "window_minutes" or value is not None}


def _row(rule: AlertRule) -> dict[str, object]:
    return {
        "rule": rule,
        "condition": wording.condition(rule),
        "figure": wording.figure(rule.kind, rule.value),
    }


def _history(request: HttpRequest, firings: QuerySet[AlertFiring], binding: str) -> dict[str, object]:
    rows, next_token = page_of_rows(
        firings, order=("-fired_at", "id"), page_size=PAGE_SIZE_DEFAULT,
        page_token=request.GET.get("page_token") or None, binding=binding,
    )  # fmt: skip
    return {
        "firings": [{"firing": firing, "happened": wording.describe_firing(firing)} for firing in rows],
        "next_token": next_token,
        "is_first": "page_token" not in request.GET,
        "here": request.path,
    }
