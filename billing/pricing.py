"""Changes that operators make to prices: the currency of a tenant and the next price of a plan, with their reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from billing.models import BillingProfile, Budget, Discount, Invoice, Plan, Price, PriceComponent
from billing.models.plans import CURRENCY_PATTERN
from instances.models import Instance, Operation
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.currencies import DIGITS_STORED_MAX, minor_digits
from tenants.errors import Conflict, FieldError, Invalid, Message
from tenants.models import Tenant

PRICE_FIELDS = ("effective_from", "currency", "base_per_hour", "per_mb_s_hour", "per_gb_hour")


def plan_of_code(code: str) -> Plan | None:
    """Returns the plan with this code, on sale or not."""
    return Plan.objects.filter(code=code).first()


def prices_of(plan: Plan) -> QuerySet[Price]:
    """Returns all prices of a plan with their components."""
    return Price.objects.filter(plan=plan).prefetch_related("components")


def tenant_of_id(tenant_id: str) -> Tenant | None:
    """Returns a tenant by id, for operators."""
    return Tenant.objects.filter(pk=tenant_id).first()


def check_currency(tenant: Tenant, currency: str) -> None:
    """Raises `Invalid` if the currency cannot be charged, and `Conflict` if the tenant must keep its own."""
    if not re.fullmatch(CURRENCY_PATTERN, currency):
        raise Invalid.at("/currency", gettext_noop("A currency is three letters, such as EUR."), code="invalid")
    if minor_digits(currency) > DIGITS_STORED_MAX:
        message = Message(
            gettext_noop("Amounts in %(currency)s have more than three decimals, which is not offered."),
            currency=currency,
        )
        raise Invalid.at("/currency", message, code="too_many_decimals")
    if currency == tenant.currency:
        return
    if not Price.objects.filter(currency=currency, plan__on_sale=True).exists():
        message = Message(gettext_noop("No plan on sale has a price in %(currency)s."), currency=currency)
        raise Conflict(message, code="no_price")
    if (
        Invoice.objects.filter(tenant=tenant).exists()
        or Instance.objects.filter(tenant=tenant).exists()
        or Operation.objects.filter(tenant=tenant).exists()
    ):
        raise Conflict(
            gettext_noop("The tenant has had an instance or an invoice. Its currency stays as it is."),
            code="is_charged",
        )
    if (
        Discount.objects.filter(tenant=tenant, amount__gt=0).exists()
        or BillingProfile.objects.filter(tenant=tenant, minimum__gt=0).exists()
        or Budget.objects.filter(tenant=tenant).exists()
    ):
        message = Message(
            gettext_noop("Discounts, budgets or the minimum are amounts in %(currency)s. Remove them first."),
            currency=tenant.currency,
        )
        raise Conflict(message, code="has_amounts")


@transaction.atomic
def set_currency(*, acting: Actor, tenant: Tenant, currency: str) -> Tenant:
    """Sets the currency of a tenant that was never charged.

    Raises:
        Invalid, Conflict: see `check_currency`.
    """
    access.require(acting, Scope.OPERATOR)
    locked = Tenant.objects.select_for_update().get(pk=tenant.pk)
    check_currency(locked, currency)
    if currency != locked.currency:
        before, locked.currency = locked.currency, currency
        locked.save_changes(["currency"])
        audit.record(
            acting, "tenant.currency_changed", locked, {"currency": before}, {"currency": currency}, tenant=locked
        )
    return locked


@transaction.atomic
def add_price(
    *, acting: Actor, plan: Plan, fields: Mapping[str, Any], components: Sequence[Mapping[str, Any]] = ()
) -> Price:
    """Adds the next price of a plan, or its first one in a currency, with a price component for each further meter that
    is charged by measured use.

    Raises:
        Invalid: the price would change past hours, exists already, or a field is wrong.
    """
    access.require(acting, Scope.OPERATOR)
    Plan.objects.select_for_update().get(pk=plan.pk)
    price = Price(plan=plan, **{name: fields[name] for name in PRICE_FIELDS})
    _save(price, "")
    for number, component in enumerate(components):
        _save(PriceComponent(price=price, **component), f"/components/{number}")
    after = {name: getattr(price, name) for name in PRICE_FIELDS}
    audit.record(
        acting, "price.added", plan, None, after | {"components": [dict(component) for component in components]}
    )
    return price


def _save(row: Price | PriceComponent, pointer: str) -> None:
    try:
        row.full_clean()
    except ValidationError as error:
        errors = [
            FieldError(pointer=pointer if name == "__all__" else f"{pointer}/{name}", detail=text, code="invalid")
            for name, texts in error.message_dict.items()
            for text in texts
        ]
        raise Invalid(errors[0].detail, errors=errors) from None
    row.save()
