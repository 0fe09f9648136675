"""Reads: what plans cost and what a tenant agreed on, in the words of rating."""

from __future__ import annotations

from collections.abc import Iterable

from billing.models import BillingProfile, Discount, Price, TaxChange
from billing.rating.terms import Agreement, PriceList
from billing.rating.terms import Discount as RatedDiscount
from billing.rating.terms import TaxChange as RatedTaxChange
from tenants.models import Tenant


def price_lists(currency: str, plans: Iterable[str]) -> list[PriceList]:
    """All of these plans in this currency, those to come as well."""
    found = Price.objects.filter(currency=currency, plan_id__in=set(plans))
    return [price.as_price_list() for price in found.select_related("plan").prefetch_related("components")]


def profile_of(tenant: Tenant) -> BillingProfile:
    """As stored, or what is so without one."""
    return BillingProfile.objects.filter(tenant=tenant).first() or BillingProfile(tenant=tenant)


def agreement_of(tenant: Tenant) -> Agreement:
    profile = profile_of(tenant)
    return Agreement(
        currency=tenant.currency,
        discounts=[
            RatedDiscount(
                code=each.code, percent=each.percent, amount=each.amount, start=each.starts_at, end=each.ends_at
            )
            for each in Discount.objects.filter(tenant=tenant).order_by("pk")
        ],
        minimum=profile.minimum,
        tax_percent=profile.tax_percent,
        tax_changes=[
            RatedTaxChange(effective_from=each.effective_from, percent=each.percent)
            for each in TaxChange.objects.filter(tenant=tenant).order_by("effective_from")
        ],
    )
