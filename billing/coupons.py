"""Writes: a tenant redeems a coupon and gets a discount."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_noop

from billing import call_limits
from billing.invoices.periods import month_of
from billing.models import Coupon, Discount
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid
from tenants.models import Tenant

# One message for unknown, expired and used-up codes and those in another currency, so that it does not reveal which
# codes exist.
INVALID_CODE = gettext_noop("This code is not valid, or not any more.")


def redeem(*, acting: Actor, code: str, now: datetime) -> Discount:
    """Creates a discount on the bills of as many months as the coupon states, beginning with the current month.

    Raises:
        RateLimited: too many codes in a minute, valid and invalid ones together.
        Invalid: the coupon does not exist, has expired, is used up or is in another currency.
        Conflict: the tenant has redeemed it already.
    """
    access.require(acting, Scope.BILLING_WRITE)
    call_limits.charge_coupon(access.tenant_of(acting))
    with transaction.atomic():
        return _redeem(acting, code.strip().upper(), now)


def _redeem(acting: Actor, code: str, now: datetime) -> Discount:
    tenant = Tenant.objects.select_for_update().get(pk=access.tenant_of(acting).pk)
    # Locked, so that the coupon is not redeemed more often than it allows.
    coupon = Coupon.objects.select_for_update().filter(code=code).first()
    # Compared by coupon as well: an operator may have changed the code since.
    is_same_coupon = Q(code=code) if coupon is None else Q(code=code) | Q(coupon=coupon)
    if Discount.objects.filter(is_same_coupon, tenant=tenant).exists():
        raise Conflict(gettext_noop("This code is redeemed already."), code="already_redeemed")
    if coupon is None or not _is_redeemable(coupon, now) or not _is_in_currency_of(coupon, tenant):
        raise Invalid.at("/code", INVALID_CODE, code="not_valid")
    month = month_of(now.astimezone(UTC))
    discount = Discount.objects.create(
        tenant=tenant, coupon=coupon, code=coupon.code, percent=coupon.percent, amount=coupon.amount,
        starts_at=month.start, ends_at=_months_after(month.start, coupon.months),
    )  # fmt: skip
    audit.record(acting, "discount.redeemed", discount, None, _audit_values(discount), tenant=tenant)
    return discount


def _is_in_currency_of(coupon: Coupon, tenant: Tenant) -> bool:
    return not coupon.amount or coupon.currency == tenant.currency


def _is_redeemable(coupon: Coupon, now: datetime) -> bool:
    if coupon.redeemable_until is not None and now >= coupon.redeemable_until:
        return False
    return Discount.objects.filter(coupon=coupon).count() < coupon.redemptions_max


def _months_after(start: datetime, months: int) -> datetime:
    years, month = divmod(start.month - 1 + months, 12)
    return start.replace(year=start.year + years, month=month + 1)


def _audit_values(discount: Discount) -> dict[str, Any]:
    return {
        "code": discount.code, "percent": str(discount.percent), "amount": str(discount.amount),
        "ends_at": discount.ends_at.isoformat() if discount.ends_at else None,
    }  # fmt: skip
