"""Console pages for buying and resizing an instance: plan, size and price."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from billing import selectors
from billing.forms import CreateForm, SizeForm
from billing.models import Plan
from billing.rating.quotes import Quote
from instances import services
from instances.choices import STEPS_OF, ClusterType, OperationType
from instances.lifecycle.step_durations import step_durations_ms
from instances.models import Instance
from instances.selectors import instance_list
from instances.views.common import instance_page, render_instance
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import add_errors, console_page, render_page

SUGGESTED_NAME = "orders"
WATER_PIXELS = 20
FIELDS = {"/settings/auto_create_topics": "auto_create_topics"}


def _cards(plans: list[Plan]) -> list[dict[str, Any]]:
    """Returns the data of plan cards: bounds of the sliders, and the water level in the plan's picture in pixels."""
    largest = max((plan.bandwidth_mb_s for plan in plans), default=1)
    levels = {plan.code: max(3, round(WATER_PIXELS * (plan.bandwidth_mb_s / largest) ** 0.5)) for plan in plans}
    return [
        {
            "plan": plan,
            "bounds": {
                "bandwidth_mb_s": [plan.bandwidth_mb_s, plan.bandwidth_mb_s_max],
                "storage_gb": [plan.storage_gb, plan.storage_gb_max],
            },
            "water": levels[plan.code],
            "dry": WATER_PIXELS - levels[plan.code],
        }
        for plan in plans
    ]


def _price(form: SizeForm, currency: str) -> tuple[Plan | None, Quote | None]:
    """Returns the plan and the quote of the form; the quote is None while a size is invalid."""
    plan = form.chosen
    if plan is None:
        return None, None
    sizes = form.sizes
    if sizes is None:
        return plan, None
    bandwidth, storage = sizes
    return plan, selectors.quote_for(plan, currency=currency, bandwidth_mb_s=bandwidth, storage_gb=storage)


def _context(form: SizeForm, plans: list[Plan], currency: str) -> dict[str, Any]:
    plan, quote = _price(form, currency)
    chosen = plan or (plans[0] if plans else None)
    return {
        "form": form,
        "cards": _cards(plans),
        "chosen": chosen,
        "quote": quote,
        "complaints": form.size_errors,
        "stops": " ".join(str(plan.bandwidth_mb_s) for plan in plans),
    }


@console_page(Scope.INSTANCES_WRITE)
@require_http_methods(["GET", "POST"])
def create_page(request: HttpRequest) -> HttpResponse:
    """Shows the form with the smallest plan and a suggested name, so that one click buys an instance."""
    acting = request.actor  # type: ignore[attr-defined]
    plans = list(selectors.plans_on_sale(currency=access.tenant_of(acting).currency))
    smallest = plans[0] if plans else None
    initial = {
        "name": request.GET.get("name") or SUGGESTED_NAME,
        "plan": smallest.code if smallest else "",
        "bandwidth_mb_s": smallest.bandwidth_mb_s if smallest else None,
        "storage_gb": smallest.storage_gb if smallest else None,
    }
    form = CreateForm(request.POST or None, plans=plans, initial=initial)
    if form.is_valid():
        values = form.cleaned_data
        try:
            with transaction.atomic():
                instance, _operation = services.create_instance(
                    acting=acting, name=values["name"], plan=values["plan"], bandwidth_mb_s=values["bandwidth_mb_s"],
                    storage_gb=values["storage_gb"], cluster_type=values["cluster_type"] or ClusterType.SHARED,
                    settings={"auto_create_topics": values["auto_create_topics"]}, protected=values["protected"],
                )  # fmt: skip
        except DomainError as error:
            add_errors(form, error, FIELDS)
        else:
            return redirect("page-instance", instance.pk)
    usual_durations_ms = step_durations_ms()
    context = _context(form, plans, access.tenant_of(acting).currency) | {
        "steps": [(step.label, usual_durations_ms.get(step.value)) for step in STEPS_OF[OperationType.CREATE]],
        "usual_total_ms": sum(usual_durations_ms.values()) if usual_durations_ms else None,
    }
    crumbs = [(_("Instances"), reverse("page-instances")), (_("Create"), None)]
    return render_page(
        request,
        "billing/create.html",
        context,
        section="instances",
        crumbs=crumbs,
        status=422 if form.is_bound else 200,
    )


@instance_page(Scope.INSTANCES_WRITE, locked=True)
@require_http_methods(["GET", "POST"])
def resize_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Resizes an instance, in effect within a second; the price is shown beforehand."""
    plans = list(selectors.plans_on_sale(current_plans=[instance.plan]))
    initial = {
        "plan": instance.plan, "bandwidth_mb_s": instance.bandwidth_mb_s, "storage_gb": instance.storage_gb,
    }  # fmt: skip
    form = SizeForm(request.POST or None, plans=plans, initial=initial)
    if form.is_valid():
        try:
            services.resize_instance(acting=request.actor, instance=instance, **form.cleaned_data)  # type: ignore[attr-defined]
        except DomainError as error:
            add_errors(form, error)
        else:
            values = {"name": instance.name, "n": f"{form.cleaned_data['bandwidth_mb_s']:,}"}
            messages.success(request, _("%(name)s gets %(n)s MB/s.") % values)
            return redirect("page-instance", instance.pk)
    currency = instance.tenant.currency
    current = selectors.quotes_of([instance], currency).get(instance.pk)
    context = _context(form, plans, currency) | {"current": current}
    return render_instance(
        request, "billing/resize.html", instance, context,
        section="overview", crumbs=[(_("Resize"), None)], status=422 if form.is_bound else 200,
    )  # fmt: skip


@console_page(Scope.INSTANCES_READ)
@require_GET
def price_part(request: HttpRequest) -> HttpResponse:
    """Renders the price panel for the sizes in a form that is being filled in, or their errors."""
    tenant = access.tenant_of(request.actor)  # type: ignore[attr-defined]
    plans = list(selectors.plans_on_sale(current_plans=instance_list(tenant).values_list("plan", flat=True)))
    form = SizeForm(request.GET, plans=plans)
    plan, quote = _price(form, tenant.currency)
    context = {"chosen": plan, "quote": quote, "complaints": form.size_errors}
    return render_page(request, "billing/price_part.html", context)


@instance_page(Scope.BILLING_READ)
@require_GET
def cost_part(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Renders the gauge with the hourly cost of the instance at its size."""
    plan = selectors.plan_of(instance)
    quote = selectors.quotes_of([instance], instance.tenant.currency).get(instance.pk)
    return render_page(request, "billing/cost_part.html", {"quote": quote, "plan": plan})
