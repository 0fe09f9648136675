"""Serializers of costs and invoices; amounts are strings of decimals."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from billing.api.serializers import Money
from billing.models import OVERDUE, Invoice, InvoiceKind, InvoiceLine, InvoiceState
from billing.payments import links
from tenants.api.endpoint import PageQuery
from tenants.api.strict import StrictSerializer
from tenants.choices import Language

COST_DAYS_MAX = 92
SHOWN_STATES = [*InvoiceState.choices, (OVERDUE, "Overdue")]


class CostQuery(PageQuery):
    """Period and grouping of costs: hours (UTC) that begin in `[start, end)`, by default this month until now."""

    start = serializers.DateTimeField(required=False)
    end = serializers.DateTimeField(required=False)
    group_by = serializers.ChoiceField(
        choices=("instance", "day", "topic", "user", "client_id"), required=False, default="instance"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        now = timezone.now().astimezone(UTC)
        attrs.setdefault("end", now)
        attrs.setdefault("start", now.replace(day=1, hour=0, minute=0, second=0, microsecond=0))
        if attrs["start"] >= attrs["end"]:
            raise ValidationError({"start": "Must lie before `end`."}, code="invalid_span")
        if attrs["end"] - attrs["start"] > timedelta(days=COST_DAYS_MAX):
            raise ValidationError({"start": f"At most {COST_DAYS_MAX} days at once."}, code="span_too_long")
        if attrs["end"] > now + timedelta(days=COST_DAYS_MAX):
            raise ValidationError({"end": f"At most {COST_DAYS_MAX} days from now."}, code="too_late")
        return attrs


class CostItemOut(serializers.Serializer):
    key = serializers.CharField(
        allow_blank=True, help_text="An instance id, a day (UTC) or a name; empty: costs of the whole account."
    )
    instance_id = serializers.CharField(allow_blank=True)
    amount = Money()
    bytes = serializers.IntegerField(help_text="Record-batch bytes in and out.")
    is_allocated = serializers.BooleanField(
        help_text="The instance's costs divided in proportion to bytes: an allocation, not a price."
    )
    hours = serializers.IntegerField(
        allow_null=True, help_text="Charged hours of the instance; null unless grouped by instance."
    )


class CostsOut(serializers.Serializer):
    """Costs before tax. The rows of all pages sum to `total`."""

    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    currency = serializers.CharField()
    total = Money()
    unpriced = serializers.ListField(
        child=serializers.CharField(),
        help_text="Ids of instances that are omitted because their plans have no price.",
    )
    items = CostItemOut(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class TaxOut(serializers.Serializer):
    """Tax of one rate. `base` is the sum of the lines taxed at it, before tax."""

    percent = serializers.DecimalField(5, 2)
    base = Money()
    tax = Money()


class InvoiceOut(serializers.ModelSerializer[Invoice]):
    """Invoice or credit note as it was issued."""

    tax_percent = serializers.DecimalField(5, 2, allow_null=True, help_text="Null if `taxes` has several rates.")
    taxes = TaxOut(source="tax_sums", many=True)
    subtotal = Money()
    tax = Money()
    total = Money()

    state = serializers.SerializerMethodField()
    open_amount = Money(help_text="Amount after credit notes and payments; 0 once it is closed.")
    from_balance = Money(help_text="Part of the total that the credit balance covered at issue.")
    pay_url = serializers.SerializerMethodField(help_text="Address to pay the open amount; empty if nothing is open.")
    kind = serializers.ChoiceField(choices=InvoiceKind.choices)
    corrects = serializers.CharField(source="corrects_id", allow_null=True)
    seller = serializers.DictField(child=serializers.CharField(allow_blank=True))
    buyer = serializers.DictField(child=serializers.CharField(allow_blank=True))

    class Meta:
        model = Invoice
        fields = (
            "id", "kind", "number", "corrects", "period_start", "period_end", "currency", "subtotal", "tax_percent",
            "tax", "taxes", "total", "from_balance", "open_amount", "pay_url", "seller", "buyer", "note", "issued_at",
            "due_at", "state", "closed_at",
        )  # fmt: skip

    def get_pay_url(self, invoice: Invoice) -> str:
        return links.pay_url(invoice)

    @extend_schema_field(serializers.ChoiceField(choices=SHOWN_STATES))
    def get_state(self, invoice: Invoice) -> str:
        return invoice.shown_state()


class InvoiceLineOut(serializers.ModelSerializer[InvoiceLine]):
    """Line of an invoice: `quantity` of `unit` at `unit_price`. `corrects` is the invoice that an adjustment or a
    credit refers to. `hours` is set where monthly terms are prorated: hours the instance was on the plan.
    """

    corrects = serializers.CharField(source="corrects_id", allow_null=True)
    amount = Money()
    tax_percent = serializers.DecimalField(
        5, 2, allow_null=True, help_text="Null in old lines, which have the rate of their invoice."
    )

    class Meta:
        model = InvoiceLine
        fields = (
            "position", "kind", "corrects", "instance_id", "plan", "meter", "start", "end", "quantity", "unit",
            "unit_price", "amount", "hours", "tax_percent",
        )  # fmt: skip


class RatedLineOut(serializers.Serializer):
    kind = serializers.CharField()
    instance_id = serializers.CharField(allow_blank=True)
    plan = serializers.CharField(allow_blank=True)
    meter = serializers.CharField(allow_blank=True)
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    quantity = serializers.DecimalField(30, 12)
    unit = serializers.CharField(allow_blank=True)
    unit_price = serializers.DecimalField(20, 8)
    amount = Money()
    hours = serializers.IntegerField(
        allow_null=True, help_text="Hours of the instance on the plan, if monthly terms are prorated."
    )
    tax_percent = serializers.DecimalField(5, 2)


class DraftOut(serializers.Serializer):
    """Bill of the current month. `forecast` is its expected total if usage and sizes stay the same."""

    period_start = serializers.DateTimeField()
    period_end = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="End of the charged hours; hours that have begun are included.")
    currency = serializers.CharField()
    subtotal = Money()
    tax = Money()
    taxes = TaxOut(many=True)
    total = Money()
    forecast = Money()
    unpriced = serializers.ListField(
        child=serializers.CharField(),
        help_text="Ids of instances that are omitted because their plans have no price.",
    )
    lines = RatedLineOut(many=True)


class SizeOut(serializers.Serializer):
    plan = serializers.CharField()
    bandwidth_mb_s = serializers.IntegerField()
    storage_gb = serializers.IntegerField()
    start = serializers.DateTimeField()
    end = serializers.DateTimeField(allow_null=True)
    only_storage = serializers.BooleanField()


class LineHourOut(serializers.Serializer):
    """Hour of a line: the sizes of the instance in it, of which the most expensive is charged, and the usage."""

    hour = serializers.DateTimeField()
    sizes = SizeOut(many=True)
    bytes_in = serializers.IntegerField()
    bytes_out = serializers.IntegerField()
    stored_byte_hours = serializers.DecimalField(max_digits=24, decimal_places=0, help_text="Of all replicas.")
    partition_hours = serializers.DecimalField(max_digits=20, decimal_places=6)
    connections_peak = serializers.IntegerField(help_text="Maximum number of concurrent connections.")


class PdfQuery(StrictSerializer):
    language = serializers.ChoiceField(choices=Language.choices, default=Language.ENGLISH)


class MinuteQuery(PageQuery):
    hour = serializers.DateTimeField(help_text="UTC hour whose minutes are listed.")


class UsageMinuteOut(serializers.Serializer):
    minute = serializers.DateTimeField()
    topic = serializers.CharField()
    user = serializers.CharField()
    client_id = serializers.CharField(allow_blank=True)
    direction = serializers.CharField()
    bytes = serializers.IntegerField()
    requests = serializers.IntegerField()


class DifferenceOut(serializers.Serializer):
    source = serializers.ChoiceField(
        choices=("inputs", "usage", "lake"),
        help_text=("Source of the recomputed amount: stored inputs, current usage, or reports in the lake."),
    )
    instance_id = serializers.CharField(allow_blank=True)
    plan = serializers.CharField(allow_blank=True)
    meter = serializers.CharField(allow_blank=True)
    invoiced = Money()
    recomputed = Money()


class InvoiceReplayOut(serializers.Serializer):
    """Replay of an invoice's period from the lake. If it has too many reports for a request, the worker reads them."""

    state = serializers.ChoiceField(
        choices=("done", "not_covered", "not_started", "queued", "running", "failed"),
        help_text=(
            "`not_covered`: the lake has no reports of the period. `not_started`: they are too many for a request; "
            "`POST` replays them in the background."
        ),
    )
    percent = serializers.FloatField()
    noted_at = serializers.DateTimeField(allow_null=True, help_text="Time of the state, of a replay in the background.")
    error = serializers.CharField(allow_blank=True)
    differences_omitted = serializers.IntegerField(
        help_text="Differences of a replay in the background beyond its first 1,000, which `differences` lacks."
    )


class RecomputationOut(serializers.Serializer):
    """Result of recomputing an invoice; without differences it is equal to the cent. Differences from usage are
    adjusted on the next invoice.
    """

    has_inputs = serializers.BooleanField(help_text="False for a credit note, which has no inputs.")
    is_equal = serializers.BooleanField(allow_null=True, help_text="Null without inputs.")
    is_replayed = serializers.BooleanField(help_text="True if the lake covers the period and was read.")
    replay = InvoiceReplayOut()
    lines = serializers.IntegerField()
    subtotal = Money()
    differences = DifferenceOut(many=True)
