"""Console pages of budgets and their alerts."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from billing import access as billing_access
from billing.budgets import services
from billing.forms import BudgetChangeForm, BudgetForm
from billing.invoices.charging import draft
from billing.models import Budget
from billing.rating.hours import NoPrice
from notifications import access as notifications_access
from notifications.limits import BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX
from tenants import access
from tenants.choices import Scope
from tenants.currencies import minor_digits
from tenants.errors import DomainError
from tenants.models import Tenant
from tenants.views.asking import Question, ask_first
from tenants.views.base import add_errors, console_page, render_page, wording

ALERTS_SHOWN = 50


@console_page(Scope.BILLING_READ)
def budgets_page(request: HttpRequest) -> HttpResponse:
    """Shows budgets with the amounts spent, the form for a new one, and the latest alerts."""
    acting = request.actor  # type: ignore[attr-defined]
    tenant = access.tenant_of(acting)
    names = billing_access.names_of(tenant)
    form = BudgetForm(request.POST or None, instances=names)
    if form.is_bound and form.is_valid():
        try:
            budget = services.create_budget(acting=acting, **form.cleaned_data)
            messages.success(request, _("Budget %(name)s is watched.") % {"name": budget.name})
            return redirect("page-budgets")
        except DomainError as error:
            add_errors(form, error)
    context = {
        "rows": _with_spent(tenant, list(billing_access.budgets_of(tenant)), names),
        "alerts": notifications_access.budget_alerts_of(tenant).order_by("-at", "id")[:ALERTS_SHOWN],
        "form": form, "currency": tenant.currency, "mails_per_hour": BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX,
    }  # fmt: skip
    status = 422 if form.is_bound else 200
    return render_page(
        request, "billing/budgets.html", context, section="budgets", crumbs=[(_("Budgets"), None)], status=status
    )


@console_page(Scope.BILLING_WRITE)
@require_http_methods(["GET", "POST"])
def budget_page(request: HttpRequest, budget_id: str) -> HttpResponse:
    """Changes the name and the amount of a budget."""
    acting = request.actor  # type: ignore[attr-defined]
    budget = billing_access.budget(acting, budget_id)
    displayed_amount = round(budget.amount, minor_digits(budget.tenant.currency))
    form = BudgetChangeForm(request.POST or None, initial={"name": budget.name, "amount": displayed_amount})
    if form.is_bound and form.is_valid():
        try:
            with transaction.atomic():
                locked = billing_access.budget(acting, budget_id, lock=True)
                services.change_budget(acting=acting, budget=locked, changes=form.cleaned_data)
            messages.success(request, _("Saved."))
            return redirect("page-budgets")
        except DomainError as error:
            add_errors(form, error)
    crumbs = [(_("Budgets"), reverse("page-budgets")), (budget.name, None)]
    context = {"budget": budget, "form": form, "currency": budget.tenant.currency}
    status = 422 if form.is_bound else 200
    return render_page(request, "billing/budget.html", context, section="budgets", crumbs=crumbs, status=status)


@console_page(Scope.BILLING_WRITE)
@require_POST
def delete_budget(request: HttpRequest, budget_id: str) -> HttpResponse:
    """Deletes a budget after confirmation."""
    acting = request.actor  # type: ignore[attr-defined]
    budget = billing_access.budget(acting, budget_id)
    question = Question(
        title=_("Delete budget %(name)s?") % {"name": budget.name},
        consequence=_("Nobody gets a mail any more when its marks are passed. Alerts sent so far stay listed."),
        action_label=_("Delete"),
        back=reverse("page-budgets"),
    )
    confirmation = ask_first(request, question, section="budgets", crumbs=[(_("Budgets"), question.back)])
    if confirmation is not None:
        return confirmation
    try:
        services.delete_budget(acting=acting, budget=budget)
        messages.success(request, _("Budget %(name)s is deleted.") % {"name": budget.name})
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-budgets")


def _with_spent(tenant: Tenant, budgets: list[Budget], names: dict[str, str]) -> list[dict[str, object]]:
    """Returns each budget with the amount spent this month, also in percent; without a price these are missing."""
    try:
        bills = draft(tenant, timezone.now()) if budgets else None
    except NoPrice:
        bills = None
    result: list[dict[str, object]] = []
    for budget in budgets:
        row: dict[str, object] = {"budget": budget, "of": names.get(budget.instance_id, budget.instance_id)}
        if bills is not None:
            spent = services.spent(bills.so_far, budget.instance_id)
            row |= {
                "spent": spent,
                "forecast": services.spent(bills.forecast, budget.instance_id),
                "percent": float(min(spent / budget.amount * 100, 100)),
                "exact_percent": round(spent / budget.amount * 100),
            }
        result.append(row)
    return result
