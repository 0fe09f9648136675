"""Reads: prices of plans and agreements of tenants as input of rating."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from billing.models import BillingProfile, Discount, Price, TaxChange
from billing.rating.terms import Agreement, Period, PriceList
from billing.rating.terms import Discount as RatedDiscount
from billing.rating.terms import TaxChange as RatedTaxChange
from tenants.models import Tenant


def price_lists(currency: str, plans: Iterable[str]) -> list[PriceList]:
    """Returns all price lists of these plans in this currency, including future ones."""
    prices = Price.objects.filter(currency=currency, plan_id__in=set(plans))
    return [price.as_price_list() for price in prices.select_related("plan").prefetch_related("components")]


def profile_of(tenant: Tenant) -> BillingProfile:
    """Returns the stored profile, or an unsaved one with the defaults."""
    return BillingProfile.objects.filter(tenant=tenant).first() or BillingProfile(tenant=tenant)


def agreement_of(tenant: Tenant, period: Period | None = None) -> Agreement:
    """Returns the agreement with a tenant. With `period`, its minimum is zero if it begins after the period."""
    profile = profile_of(tenant)
    is_minimum_due = period is None or profile.minimum_from is None or profile.minimum_from < period.end.date()
    return Agreement(
        currency=tenant.currency,
        discounts=[
            RatedDiscount(
                code=discount.code,
                percent=discount.percent,
                amount=discount.amount,
                start=discount.starts_at,
                end=discount.ends_at,
            )
            for discount in Discount.objects.filter(tenant=tenant).order_by("pk")
        ],
        minimum=profile.minimum if is_minimum_due else Decimal(0),
        tax_percent=profile.tax_percent,
        tax_changes=[
            RatedTaxChange(effective_from=change.effective_from, percent=change.percent)
            for change in TaxChange.objects.filter(tenant=tenant).order_by("effective_from")
        ],
    )
