"""Console page of the tenant's billing details."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing import details, prices
from billing.forms import BillingDetailsForm
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.base import add_errors, console_page, render_page


@console_page(Scope.BILLING_READ)
def details_page(request: HttpRequest) -> HttpResponse:
    """Shows and changes legal name, address, tax id, mail addresses and purchase order."""
    acting = request.actor  # type: ignore[attr-defined]
    profile = prices.profile_of(access.tenant_of(acting))
    form = BillingDetailsForm(request.POST or None, initial={name: getattr(profile, name) for name in details.FIELDS})
    if form.is_bound and form.is_valid():
        try:
            details.change(acting=acting, changes=form.cleaned_data)
            messages.success(request, _("Billing details are saved. They stand on the next invoices."))
            return redirect("page-billing-details")
        except DomainError as error:
            add_errors(form, error)
    crumbs = [(_("Invoices"), "/invoices/"), (_("Billing details"), None)]
    return render_page(
        request, "billing/details.html", {"form": form, "profile": profile}, section="invoices", crumbs=crumbs,
        status=422 if form.is_bound else 200,
    )  # fmt: skip
