"""REST resources of operators for prices, currencies and taxes: `/operator/plans/{code}/prices`,
`/operator/tenants/{id}/currency`, `/operator/tenants/{id}/tax-changes`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing import pricing, tax
from billing.api.operator_base import OperatorMoneyView, tenant_or_404
from billing.api.serializers import UnitPrice
from billing.models import Plan, Price, PriceComponent, TaxChange
from billing.rating.tiers import NUMBER_CHARS_MAX, TIERS_MAX
from tenants.api.base import endpoint
from tenants.api.strict import Choice, Instant, StrictSerializer, Text
from tenants.choices import Scope
from tenants.errors import NotFound
from tenants.models import Tenant

# Digits of the largest id; int() refuses text of more than 4,300 digits.
ID_DIGITS_MAX: Final = 19
METERS = [meter for meter, _ in PriceComponent.MEASURED]


class ComponentOut(serializers.ModelSerializer[PriceComponent]):
    """Price of a measured meter. Each tier is `[up to, unit price, flat fee]`."""

    tiers = serializers.ListField(child=serializers.ListField(child=serializers.CharField(allow_null=True)))
    overage_price = UnitPrice(allow_null=True)

    class Meta:
        model = PriceComponent
        fields = ("meter", "scheme", "tiers", "included", "commit", "overage_price")


class PlanPriceOut(serializers.ModelSerializer[Price]):
    """Price of a plan in one currency from an instant on, until a later price takes effect."""

    components = ComponentOut(many=True)

    class Meta:
        model = Price
        fields = ("currency", "effective_from", "base_per_hour", "per_mb_s_hour", "per_gb_hour", "components")


class ComponentIn(StrictSerializer):
    meter = Choice(choices=METERS)
    scheme = Choice(
        choices=[scheme for scheme, _ in PriceComponent._meta.get_field("scheme").choices], default="graduated"
    )
    tiers = serializers.ListField(
        child=serializers.ListField(
            child=Text(max_length=NUMBER_CHARS_MAX, allow_null=True), min_length=3, max_length=3
        ),
        min_length=1, max_length=TIERS_MAX,
        help_text="`[up to, unit price, flat fee]` each, numbers as strings; only the last one has null as its end.",
    )  # fmt: skip
    included = serializers.DecimalField(20, 6, min_value=Decimal(0), default=Decimal(0))
    commit = serializers.DecimalField(20, 6, min_value=Decimal(0), default=Decimal(0))
    overage_price = serializers.DecimalField(12, 6, min_value=Decimal(0), allow_null=True, default=None)


class PlanPriceIn(StrictSerializer):
    """Next price of a plan, or its first one in a currency."""

    currency = Text(max_length=3, min_length=3, help_text="ISO 4217.")
    effective_from = Instant(help_text="In the future, unless it is the first price in the currency.")
    base_per_hour = serializers.DecimalField(12, 4, min_value=Decimal(0))
    per_mb_s_hour = serializers.DecimalField(12, 4, min_value=Decimal(0))
    per_gb_hour = serializers.DecimalField(12, 6, min_value=Decimal(0))
    components = serializers.ListField(child=ComponentIn(), max_length=len(METERS), default=list)


class CurrencyIn(StrictSerializer):
    currency = Text(max_length=3, min_length=3, help_text="ISO 4217.")


class CurrencyOut(serializers.ModelSerializer[Tenant]):
    class Meta:
        model = Tenant
        fields = ("id", "slug", "currency")


class TaxChangeIn(StrictSerializer):
    effective_from = Instant(help_text="Not before the end of the last invoice. An hour is taxed alike.")
    percent = serializers.DecimalField(5, 2, min_value=Decimal(0), max_value=Decimal(100))


class TaxChangeOut(serializers.ModelSerializer[TaxChange]):
    """Tax rate in force from an instant until the next change."""

    class Meta:
        model = TaxChange
        fields = ("id", "effective_from", "percent")


class PlanPriceCollection(OperatorMoneyView):
    @endpoint("list_plan_prices", Scope.OPERATOR, page_item=PlanPriceOut)
    def get(self, request: Request, plan: str) -> Response:
        """List the prices of a plan.

        Past, current and future prices in all currencies.
        """
        return self.page(pricing.prices_of(_plan(plan)), PlanPriceOut, order=("effective_from", "pk"))

    @endpoint("add_plan_price", Scope.OPERATOR, body=PlanPriceIn, returns=PlanPriceOut, status=201, errors=(404, 422))
    def post(self, request: Request, plan: str) -> Response:
        """Add a price to a plan.

        A price in force is never changed, only superseded by the next one.
        """
        body: dict[str, Any] = dict(self.body)
        components = [dict(component) for component in body.pop("components")]
        price = pricing.add_price(acting=self.actor, plan=_plan(plan), fields=body, components=components)
        return self.one(price, PlanPriceOut, status=201)


class TenantCurrency(OperatorMoneyView):
    may_write = "billing.change_billingprofile"

    @endpoint("set_tenant_currency", Scope.OPERATOR, body=CurrencyIn, returns=CurrencyOut, errors=(404, 409, 422))
    def put(self, request: Request, tenant_id: str) -> Response:
        """Set the currency of a tenant.

        Only before the tenant has had an instance, an invoice, or amounts agreed in another currency.
        """
        tenant = pricing.set_currency(
            acting=self.actor, tenant=tenant_or_404(tenant_id), currency=self.body["currency"]
        )
        return self.one(tenant, CurrencyOut)


class TaxChangeCollection(OperatorMoneyView):
    may_read = "billing.view_billingprofile"
    may_write = "billing.change_billingprofile"

    @endpoint("list_tax_changes", Scope.OPERATOR, page_item=TaxChangeOut, errors=(404,))
    def get(self, request: Request, tenant_id: str) -> Response:
        """List the changes of a tenant's tax rate after the one of its billing profile."""
        return self.page(tax.changes_of(tenant_or_404(tenant_id)), TaxChangeOut, order=("effective_from", "pk"))

    @endpoint("add_tax_change", Scope.OPERATOR, body=TaxChangeIn, returns=TaxChangeOut, status=201, errors=(404, 422))
    def post(self, request: Request, tenant_id: str) -> Response:
        """Add a tax rate that is in force from an instant on.

        Lines are taxed at the rate of their hours: a bill in which the rate changes has lines of both rates.
        """
        change = tax.add(acting=self.actor, tenant=tenant_or_404(tenant_id), **self.body)
        return self.one(change, TaxChangeOut, status=201)


class TaxChangeDetail(OperatorMoneyView):
    may_write = "billing.change_billingprofile"

    @endpoint("delete_tax_change", Scope.OPERATOR, status=204, errors=(404, 409))
    def delete(self, request: Request, tenant_id: str, change_id: str) -> Response:
        """Remove a change of the tax rate, as long as none of its hours was invoiced."""
        is_number = change_id.isascii() and change_id.isdigit() and len(change_id) <= ID_DIGITS_MAX
        number = int(change_id) if is_number else None
        change = tax.changes_of(tenant_or_404(tenant_id)).filter(pk=number).first()
        if change is None:
            raise NotFound()
        tax.remove(acting=self.actor, change=change)
        return Response(status=204)


def _plan(code: str) -> Plan:
    plan = pricing.plan_of_code(code)
    if plan is None:
        raise NotFound()
    return plan
