"""REST resource of billing details: the tenant's data on invoices and the recipients of invoices."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from billing import details, prices
from billing.models import BillingProfile
from billing.models.agreements import (
    ADDRESS_CHARS_MAX,
    ADDRESS_LINES_MAX,
    COUNTRY_CHARS,
    EMAIL_CHARS_MAX,
    EMAILS_MAX,
    NAME_CHARS_MAX,
    PURCHASE_ORDER_CHARS_MAX,
    TAX_ID_CHARS_MAX,
)
from tenants.api.base import ApiView, endpoint
from tenants.api.strict import StrictSerializer, Text
from tenants.choices import Scope


class BillingDetailsOut(serializers.ModelSerializer[BillingProfile]):
    """Details that are copied into invoices when they are issued. Tax is set by the operator."""

    emails = serializers.ListField(
        child=serializers.CharField(), help_text="Invoices go to these; empty: to owners and finance."
    )
    tax_percent = serializers.SerializerMethodField(help_text="In force now.")
    reverse_charge = serializers.BooleanField()

    class Meta:
        model = BillingProfile
        fields = (
            "legal_name",
            "address",
            "country",
            "tax_id",
            "emails",
            "purchase_order",
            "tax_percent",
            "reverse_charge",
        )

    @extend_schema_field(serializers.DecimalField(5, 2))
    def get_tax_percent(self, profile: BillingProfile) -> str:
        return f"{prices.agreement_of(profile.tenant).tax_percent_at(timezone.now()):.2f}"


class BillingDetailsChange(StrictSerializer):
    legal_name = Text(max_length=NAME_CHARS_MAX, required=False, allow_blank=True)
    address = Text(
        max_length=ADDRESS_CHARS_MAX, required=False, allow_blank=True, help_text=f"At most {ADDRESS_LINES_MAX} lines."
    )
    country = Text(
        max_length=COUNTRY_CHARS, required=False, allow_blank=True, help_text="ISO 3166-1 alpha-2, such as `DE`."
    )
    tax_id = Text(max_length=TAX_ID_CHARS_MAX, required=False, allow_blank=True)
    emails = serializers.ListField(
        child=Text(min_length=1, max_length=EMAIL_CHARS_MAX), max_length=EMAILS_MAX, required=False
    )
    purchase_order = Text(max_length=PURCHASE_ORDER_CHARS_MAX, required=False, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise ValidationError("Name what changes.", code="nothing_to_change")
        return attrs


class BillingDetails(ApiView):
    tag = "Billing"

    @endpoint("get_billing_details", Scope.BILLING_READ, returns=BillingDetailsOut)
    def get(self, request: Request) -> Response:
        """Read billing details."""
        return self.one(prices.profile_of(self.tenant), BillingDetailsOut)

    @endpoint("change_billing_details", Scope.BILLING_WRITE, body=BillingDetailsChange, returns=BillingDetailsOut)
    def patch(self, request: Request) -> Response:
        """Change billing details. They apply to future invoices; issued ones do not change."""
        return self.one(details.change(acting=self.actor, changes=self.body), BillingDetailsOut)
