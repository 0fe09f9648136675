"""Billing in the operator panel: plans and prices are changed here, usage is only read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.admin import TabularInline

from billing.models import Plan, Price, UsageMinute, UsageOffset
from tenants import audit
from tenants.operator import OperatorAdmin, acting_operator


class PriceInline(TabularInline):
    """Prices of a plan: one that has begun is history, the next one is added with a later date."""

    model = Price
    extra = 0

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Plan)
class PlanAdmin(OperatorAdmin):
    when_empty = _("Without a plan on sale nobody can create an instance. manage.py up makes the first ones.")
    symbol = "sell"
    may_change = True
    may_add = True
    list_display = (
        "name", "code", "bandwidth_mb_s", "storage_gb", "bandwidth_mb_s_max", "storage_gb_max", "partitions_max",
        "price_in_force", "on_sale",
    )  # fmt: skip
    list_filter = ("on_sale",)
    inlines = (PriceInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Plan | None = None) -> tuple[str, ...]:
        """What instances were sold under stays as it was; a plan ends by taking it off sale."""
        sold = ("code", "bandwidth_mb_s", "storage_gb", "bandwidth_mb_s_max", "storage_gb_max", "partitions_max")
        return sold if obj is not None else ()

    @admin.display(description=_("price in force, per hour"))
    def price_in_force(self, plan: Plan) -> str:
        now = timezone.now()
        begun = [price for price in plan.prices.all() if price.effective_from <= now]
        in_force = {price.currency: price for price in reversed(begun)}  # the latest of each currency stays
        return ", ".join(f"{in_force[name].base_per_hour} {name}" for name in sorted(in_force)) or "—"

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("prices")

    def save_model(self, request: HttpRequest, obj: Plan, form: Any, change: bool) -> None:
        before = {name: form.initial.get(name) for name in form.changed_data} if change else {}
        super().save_model(request, obj, form, change)
        if change and not form.changed_data:
            return  # what was added below it has an entry of its own
        audit.record(
            acting_operator(request),
            "plan.changed" if change else "plan.created",
            obj,
            before=before,
            after={name: form.cleaned_data[name] for name in form.changed_data},
        )

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Prices: what everybody on the plan pays from an instant on."""
        super().save_formset(request, form, formset, change)
        for price in formset.new_objects:
            names = ("effective_from", "currency", "base_per_hour", "per_mb_s_hour", "per_gb_hour")
            after = {name: getattr(price, name) for name in names}
            audit.record(acting_operator(request), "price.added", price.plan, None, after)


@admin.register(UsageMinute)
class UsageMinuteAdmin(OperatorAdmin):
    when_empty = _(
        "Usage comes within two minutes of the first message. Nothing after that? Look at logs/pipeline.log."
    )
    symbol = "monitoring"
    list_display = ("minute", "instance_id", "topic", "user", "client_id", "direction", "bytes", "requests")
    list_filter = ("direction",)
    search_fields = ("instance_id", "topic")
    date_hierarchy = "minute"
    ordering = ("-minute",)


@admin.register(UsageOffset)
class UsageOffsetAdmin(OperatorAdmin):
    """How far the pipeline is."""

    when_empty = _(
        "How far the pipeline has read each broker's usage. Nothing after its first run? Look at logs/pipeline.log."
    )
    symbol = "conveyor_belt"
    list_display = ("cluster_id", "topic", "partition", "next_offset", "updated_at")
