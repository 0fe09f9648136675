"""Serializers of plans, quotes and usage; money is a string of decimals, bytes are integers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from billing.metered import STEPS, STEPS_PER_REQUEST_MAX
from billing.models import Direction, Plan
from billing.selectors import price_of
from tenants.api.endpoint import PageQuery
from tenants.api.strict import StrictSerializer
from tenants.currencies import DIGITS_STORED_MAX, plain
from tenants.formatting import UNIT_PRICE_DIGITS_MIN

BANDWIDTH_MB_S_MAX = 1_000_000
STORAGE_GB_MAX = 10_000_000
DEFAULT_SPAN_STEPS = 24
UNIT_PRICE_DECIMALS_MAX = 12


class UnitPrice(serializers.DecimalField):
    """Price with all its decimals, but at least 4."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_digits=24, decimal_places=UNIT_PRICE_DECIMALS_MAX, **kwargs)

    def to_representation(self, value: Any) -> str:
        whole, _, decimals = super().to_representation(value).partition(".")
        return f"{whole}.{decimals.rstrip('0').ljust(UNIT_PRICE_DIGITS_MIN, '0')}"


class Money(serializers.DecimalField):
    """Amount with two decimals, and a third if it is not zero, as in KWD."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_digits=17, decimal_places=DIGITS_STORED_MAX, **kwargs)

    def to_representation(self, value: Any) -> str:
        return f"{plain(Decimal(super().to_representation(value))):f}"


class PriceOut(serializers.Serializer):
    """Hourly prices of a plan from an instant on."""

    currency = serializers.CharField()
    effective_from = serializers.DateTimeField()
    base_per_hour = serializers.DecimalField(12, 4)
    per_mb_s_hour = serializers.DecimalField(12, 4, help_text="For each MB/s beyond what the plan includes.")
    per_gb_hour = serializers.DecimalField(12, 6, help_text="For each GB beyond what the plan includes.")


class PlanOut(serializers.Serializer):
    """Plan on sale. 1 MB = 10^6 bytes, 1 GB = 10^9 bytes."""

    code = serializers.CharField()
    name = serializers.CharField()
    bandwidth_mb_s = serializers.IntegerField(help_text="Included bandwidth in each direction.")
    storage_gb = serializers.IntegerField(help_text="Included storage.")
    bandwidth_mb_s_max = serializers.IntegerField()
    storage_gb_max = serializers.IntegerField()
    partitions_max = serializers.IntegerField()
    idle_stop_days = serializers.IntegerField(
        help_text="An instance that moved no byte for so many days is suspended until it is resumed. 0: never."
    )
    price = serializers.SerializerMethodField()

    @extend_schema_field(PriceOut(allow_null=True))
    def get_price(self, plan: Plan) -> dict[str, Any] | None:
        price = price_of(plan)
        return PriceOut(price).data if price else None


class QuoteQuery(StrictSerializer):
    """Plan and quantities to price. Without a plan the smallest one that fits is used."""

    plan = serializers.SlugField(required=False, max_length=32)
    bandwidth_mb_s = serializers.IntegerField(required=False, min_value=1, max_value=BANDWIDTH_MB_S_MAX)
    storage_gb = serializers.IntegerField(required=False, min_value=1, max_value=STORAGE_GB_MAX)


class QuoteLineOut(serializers.Serializer):
    component = serializers.CharField(help_text="`base`, `bandwidth` or `storage`.")
    quantity = serializers.IntegerField()
    unit = serializers.CharField()
    unit_price = UnitPrice(help_text="An hour, for each unit.")
    per_hour = UnitPrice()


class QuoteOut(serializers.Serializer):
    """Price before buying: `quantity` times `unit_price` is exactly a line's `per_hour`, and the lines sum exactly to
    `per_hour`. A month is 730 hours; `per_month` is rounded once.
    """

    plan = serializers.CharField()
    bandwidth_mb_s = serializers.IntegerField()
    storage_gb = serializers.IntegerField()
    currency = serializers.CharField()
    lines = QuoteLineOut(many=True)
    per_hour = UnitPrice()
    per_month = Money()


class UsageQuery(PageQuery):
    """Span, step and grouping of usage: `[start, end)`, by default the last 24 steps including the current one."""

    start = serializers.DateTimeField(required=False)
    end = serializers.DateTimeField(required=False)
    step = serializers.ChoiceField(choices=sorted(STEPS), required=False, default="hour")
    group_by = serializers.ChoiceField(choices=("topic", "user", "client_id"), required=False)

    def validate(self, attrs: dict) -> dict:
        step = STEPS[attrs["step"]]
        attrs.setdefault("end", timezone.now())
        try:
            attrs.setdefault("start", attrs["end"] - DEFAULT_SPAN_STEPS * step)
        except OverflowError:
            raise ValidationError({"end": "There is no calendar that early."}, code="invalid_span") from None
        if attrs["start"] >= attrs["end"]:
            raise ValidationError({"start": "Must lie before `end`."}, code="invalid_span")
        if (attrs["end"] - attrs["start"]) / step > STEPS_PER_REQUEST_MAX:
            raise ValidationError(
                {"start": f"At most {STEPS_PER_REQUEST_MAX} steps at once; ask for larger steps or a shorter span."},
                code="span_too_long",
            )
        return attrs


class UsageTotalsOut(serializers.Serializer):
    produce_bytes = serializers.IntegerField(help_text="Record-batch bytes the leaders accepted.")
    consume_bytes = serializers.IntegerField(help_text="Record-batch bytes written to sockets.")
    produce_requests = serializers.IntegerField()
    consume_requests = serializers.IntegerField()


class UsageItemOut(serializers.Serializer):
    """Usage of one step, direction and group."""

    start = serializers.DateTimeField()
    direction = serializers.ChoiceField(choices=Direction.choices)
    topic = serializers.CharField(required=False)
    user = serializers.CharField(required=False)
    client_id = serializers.CharField(required=False)
    bytes = serializers.IntegerField()
    requests = serializers.IntegerField()


class UsageOut(serializers.Serializer):
    """Usage of a span. Usage after `complete_until` may still be incomplete; null if nothing is known."""

    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    step = serializers.CharField()
    totals = UsageTotalsOut()
    complete_until = serializers.DateTimeField(allow_null=True)
    items = UsageItemOut(many=True)
    next_page_token = serializers.CharField(allow_null=True)
