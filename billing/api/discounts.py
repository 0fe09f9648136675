"""REST resources of discounts (`/discounts`) and of redeeming coupons."""

from __future__ import annotations

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing import access, coupons
from billing.api.serializers import Money
from billing.models import Discount
from billing.models.agreements import DISCOUNT_CODE_CHARS_MAX
from tenants.api.base import ApiView, endpoint
from tenants.api.strict import StrictSerializer, Text
from tenants.choices import Scope


class DiscountOut(serializers.ModelSerializer[Discount]):
    """Discount on the bill of each month that begins in `[starts_at, ends_at)`: a percentage, then an amount in the
    tenant's currency, before tax. A bound that is null is open.
    """

    amount = Money()

    class Meta:
        model = Discount
        fields = ("code", "percent", "amount", "starts_at", "ends_at")


class CouponIn(StrictSerializer):
    code = Text(
        trim_whitespace=True,
        min_length=1,
        max_length=DISCOUNT_CODE_CHARS_MAX,
        help_text="Of a coupon; capitals or not.",
    )


class DiscountCollection(ApiView):
    tag = "Billing"

    @endpoint("list_discounts", Scope.BILLING_READ, page_item=DiscountOut)
    def get(self, request: Request) -> Response:
        """List discounts, including expired ones."""
        return self.page(access.discounts_of(self.tenant), DiscountOut, order=("id",))

    @endpoint("redeem_coupon", Scope.BILLING_WRITE, body=CouponIn, returns=DiscountOut, status=201, errors=(409, 429))
    def post(self, request: Request) -> Response:
        """Redeem a coupon.

        Its discount starts in the current month and lasts as many months as the coupon states. A tenant can redeem a
        code once. Invalid codes count against a limit per minute.
        """
        discount = coupons.redeem(acting=self.actor, code=self.body["code"], now=timezone.now())
        return self.one(discount, DiscountOut, status=201)
