"""`/discounts`: what is off a tenant's bills, and the coupons it redeems."""

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
    """Off the bill of each month that begins in `[starts_at, ends_at)`: a percentage, then an amount, in the tenant's
    currency and before tax. None: without a beginning, or an end.
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

    @endpoint("list_discounts", Scope.BILLING_READ, page=DiscountOut)
    def get(self, request: Request) -> Response:
        """List discounts, those that are over included."""
        return self.page(access.discounts_of(self.tenant), DiscountOut, order=("id",))

    @endpoint("redeem_coupon", Scope.BILLING_WRITE, body=CouponIn, returns=DiscountOut, status=201, errors=(409, 429))
    def post(self, request: Request) -> Response:
        """Redeem a coupon.

        Its discount counts from the month that runs, for as many months as the coupon says. Each tenant redeems a code
        once. Wrong codes count against a limit a minute.
        """
        discount = coupons.redeem(acting=self.actor, code=self.body["code"], now=timezone.now())
        return self.one(discount, DiscountOut, status=201)
