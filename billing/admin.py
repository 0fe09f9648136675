"""Billing in the operator panel: plans and prices can be changed, usage is read-only."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.admin import TabularInline

from billing import admin_action_items as _admin_action_items  # noqa: F401  (registers its page)
from billing import admin_taxes as _admin_taxes  # noqa: F401  (registers its page)
from billing import pricing, selectors
from billing.admin_views.urls import money_urls
from billing.invoices import issuing
from billing.models import (
    NO_BROKER,
    BillingProfile,
    Coupon,
    Discount,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LedgerEntry,
    Payment,
    Plan,
    Price,
    PriceComponent,
    Seller,
    UsageMinute,
    UsageOffset,
    UsageProblem,
)
from billing.payments import services as payments
from billing.reporting import usage_problems
from tenants import audit
from tenants.actors import Actor
from tenants.errors import DomainError
from tenants.operator import NavigationPage, OperatorAdmin, acting_operator, operator_action
from tenants.wording import localized


class PriceFormSet(BaseInlineFormSet):
    """Prices of one plan; a plan on sale requires a price in force."""

    def clean(self) -> None:
        super().clean()
        if not getattr(self.instance, "on_sale", False) or any(self.errors):
            return
        now = timezone.now()
        added = [form.cleaned_data.get("effective_from") for form in self.extra_forms]
        if any(effective_from is not None and effective_from <= now for effective_from in added):
            return
        if self.instance.pk and selectors.has_price(self.instance, now):
            return
        raise ValidationError(_("A plan on sale needs a price that has begun. Add one, or take the plan off sale."))


class PriceInline(TabularInline):
    """Prices of a plan. They cannot be changed or deleted; a successor is added with a later date."""

    model = Price
    formset = PriceFormSet
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
        "idle_stop_days", "price_in_force", "on_sale",
    )  # fmt: skip
    list_filter = ("on_sale",)
    inlines = (PriceInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Plan | None = None) -> tuple[str, ...]:
        """Terms under which instances were sold are read-only; a plan ends by taking it off sale."""
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
            return  # prices that were added inline have audit entries of their own
        audit.record(
            acting_operator(request),
            "plan.changed" if change else "plan.created",
            obj,
            before=before,
            after={name: form.cleaned_data[name] for name in form.changed_data},
        )

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Records an audit entry for each price that was added."""
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
    # The table has no index by id, and a detail page would show nothing more.
    list_display_links = None
    list_display = ("minute", "instance_id", "topic", "user", "client_id", "direction", "bytes", "requests")
    list_filter = ("direction",)
    search_fields = ("instance_id", "topic")
    date_hierarchy = "minute"
    ordering = ("-minute",)


@admin.register(UsageOffset)
class UsageOffsetAdmin(OperatorAdmin):
    """Next offset that the pipeline reads, for each partition of each cluster's usage topic."""

    when_empty = _(
        "How far the pipeline has read each broker's usage. Nothing after its first run? Look at logs/pipeline.log."
    )
    symbol = "conveyor_belt"
    list_display = ("cluster_id", "topic", "partition", "next_offset", "updated_at")


@admin.register(UsageProblem)
class UsageProblemAdmin(OperatorAdmin):
    """Usage records that were rejected, or counted at another time than the one that they state."""

    when_empty = _("Every usage record that brokers wrote was counted as it was written.")
    symbol = "running_with_errors"
    list_display = (
        "last_at",
        "cluster_id",
        "broker",
        "kind",
        "records",
        "partition",
        "last_offset",
        "detail_text",
        "handled_at",
    )
    list_filter = ("kind", ("handled_at", admin.EmptyFieldListFilter), "cluster_id")
    actions = ("mark_handled",)

    @admin.display(description=_("broker"))
    def broker(self, problem: UsageProblem) -> str:
        return "—" if problem.broker_id == NO_BROKER else str(problem.broker_id)

    @admin.display(description=_("as written"))
    def detail_text(self, problem: UsageProblem) -> str:
        return usage_problems.detail_text(problem)

    @operator_action(_("Mark as handled"))
    def mark_handled(self, acting: Actor, problem: UsageProblem) -> Any:
        usage_problems.handle(acting=acting, problem=problem, now=timezone.now())
        return _("handled")


@admin.register(Payment)
class PaymentAdmin(OperatorAdmin):
    """Payments that a provider reported, with those that need an operator's attention."""

    when_empty = _("No payment was reported. A provider is connected by PENSTOCK_PAYMENTS_SECRETS.")
    symbol = "payments"
    list_display = ("received_at", "provider_id", "invoice_number", "amount", "currency", "problem", "handled_at")
    list_filter = ("problem", ("handled_at", admin.EmptyFieldListFilter), "currency")
    search_fields = ("provider_id", "invoice_number")
    actions = ("mark_handled",)

    @operator_action(_("Mark as handled"))
    def mark_handled(self, acting: Actor, payment: Payment) -> Any:
        payments.handle(acting=acting, payment=payment, now=timezone.now())
        return _("handled")


@admin.register(PriceComponent)
class PriceComponentAdmin(OperatorAdmin):
    """Prices of measured meters; they can be added to prices that are not in force yet."""

    when_empty = _("Traffic, stored bytes, partitions and connections are free until a price has a component of them.")
    symbol = "price_change"
    may_add = True
    list_display = ("price", "meter", "scheme", "tiers", "included", "commit", "overage_price")
    list_filter = ("meter",)

    def save_model(self, request: HttpRequest, obj: PriceComponent, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        after = {name: form.cleaned_data[name] for name in ("meter", "scheme", "tiers", "included", "commit")}
        audit.record(acting_operator(request), "price.component_added", obj.price.plan, None, after)


class _AgreementAdmin(OperatorAdmin):
    """Base class for rows that operators may add and change: agreements with tenants, coupons and the seller.

    Additions and changes are recorded in the audit log as `<audit_kind>.changed`.
    """

    may_add = True
    may_change = True
    audit_kind = ""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        before = {name: form.initial.get(name) for name in form.changed_data} if change else None
        super().save_model(request, obj, form, change)
        after = {name: form.cleaned_data[name] for name in form.changed_data if name != "tenant"}
        tenant = getattr(obj, "tenant", None)
        audit.record(acting_operator(request), f"{self.audit_kind}.changed", obj, before, after, tenant=tenant)


class BillingProfileForm(forms.ModelForm):
    """Billing profile together with the tenant's currency, which is fixed once the tenant was charged."""

    currency = forms.CharField(label=_("currency"), max_length=3, required=False, help_text=_("Empty: as it is."))

    class Meta:
        model = BillingProfile
        fields = "__all__"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.initial["currency"] = self.instance.tenant.currency

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        cleaned["currency"] = (cleaned.get("currency") or "").strip().upper()
        tenant = cleaned.get("tenant") or (self.instance.tenant if self.instance.pk else None)
        if cleaned["currency"] and tenant is not None:
            try:
                pricing.check_currency(tenant, cleaned["currency"])
            except DomainError as error:
                self.add_error("currency", localized(error.detail))
        return cleaned


@admin.register(BillingProfile)
class BillingProfileAdmin(_AgreementAdmin):
    form = BillingProfileForm
    when_empty = _("Who has none pays no tax and has no minimum.")
    symbol = "contact_page"
    audit_kind = "billing_profile"
    list_display = ("tenant", "currency", "legal_name", "tax_percent", "reverse_charge", "minimum")
    list_select_related = ("tenant",)
    search_fields = ("tenant__name", "legal_name")

    @admin.display(description=_("currency"))
    def currency(self, profile: BillingProfile) -> str:
        return profile.tenant.currency

    def save_model(self, request: HttpRequest, obj: BillingProfile, form: Any, change: bool) -> None:
        """Sets the currency first, so that nothing is saved if the currency is refused."""
        currency = form.cleaned_data["currency"]
        if currency:
            pricing.set_currency(acting=acting_operator(request), tenant=obj.tenant, currency=currency)
        form.changed_data[:] = [name for name in form.changed_data if name != "currency"]
        super().save_model(request, obj, form, change)


@admin.register(Discount)
class DiscountAdmin(_AgreementAdmin):
    when_empty = _("No discounts.")
    symbol = "percent"
    audit_kind = "discount"
    list_display = ("tenant", "code", "percent", "amount", "starts_at", "ends_at")
    search_fields = ("tenant__name", "code")


@admin.register(Coupon)
class CouponAdmin(_AgreementAdmin):
    """Coupons. A tenant that redeemed one has a discount with its code, which later changes of the coupon do not
    affect.
    """

    when_empty = _("No coupons. Tenants redeem the code of one on their page of invoices.")
    symbol = "confirmation_number"
    audit_kind = "coupon"
    list_display = (
        "code",
        "percent",
        "amount",
        "currency",
        "months",
        "redeemed",
        "redemptions_max",
        "redeemable_until",
    )
    search_fields = ("code",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Coupon]:
        return selectors.with_redemptions(super().get_queryset(request))

    @admin.display(description=_("redeemed"))
    def redeemed(self, coupon: Coupon) -> int:
        return coupon.redemptions  # type: ignore[attr-defined, no-any-return]


@admin.register(Seller)
class SellerAdmin(_AgreementAdmin):
    when_empty = _("What an invoice shows of the one who issues it.")
    symbol = "storefront"
    audit_kind = "seller"
    list_display = ("name", "tax_id", "number_prefix", "payment_days", "suspend_days")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not issuing.has_seller() and super().has_add_permission(request, obj)


class InvoiceLineInline(TabularInline):
    model = InvoiceLine
    fk_name = "invoice"
    extra = 0
    fields = ("position", "kind", "instance_id", "meter", "quantity", "unit", "unit_price", "amount")
    readonly_fields = fields
    ordering = ("position",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Invoice)
class InvoiceAdmin(OperatorAdmin):
    when_empty = _("No invoice was issued yet. They are issued when a month is over and its usage is read.")
    symbol = "receipt_long"
    list_display = ("number", "tenant", "kind", "period_start", "total", "currency", "shown", "due_at", "reference")
    list_filter = ("state", "kind", "currency")
    search_fields = ("number", "tenant__name", "tenant__slug")
    date_hierarchy = "period_start"
    list_select_related = ("tenant",)
    exclude = ("inputs",)
    pages = (
        NavigationPage(_("Close a month"), "event_available", "billing_month"),
        NavigationPage(_("Revenue"), "bar_chart", "billing_revenue"),
        NavigationPage(_("Overdue"), "schedule", "billing_overdue"),
        NavigationPage(_("Credit balances"), "account_balance_wallet", "billing_credits"),
        NavigationPage(_("Margins"), "percent", "billing_margins"),
    )
    inlines = (InvoiceLineInline,)
    actions = ("mark_paid", "write_off", "credit_note")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("inputs")

    def get_urls(self) -> list[URLPattern]:
        return [*money_urls(), *super().get_urls()]

    @admin.display(description=_("state"))
    def shown(self, invoice: Invoice) -> str:
        return invoice.shown_state()

    @operator_action(_("Mark as paid"))
    def mark_paid(self, acting: Actor, invoice: Invoice) -> Any:
        self._close(acting, invoice, InvoiceState.PAID)
        return _("paid")

    @operator_action(_("Write off"))
    def write_off(self, acting: Actor, invoice: Invoice) -> Any:
        self._close(acting, invoice, InvoiceState.WRITTEN_OFF)
        return _("written off")

    @admin.action(description=_("Issue a credit note"), permissions=["operate"])
    def credit_note(self, request: HttpRequest, invoices: QuerySet[Invoice]) -> HttpResponse:
        """Redirects to the page that asks for the amount, for the first selected invoice."""
        return redirect("admin:billing_credit_note", invoices.values_list("pk", flat=True)[0])

    def _close(self, acting: Actor, invoice: Invoice, state: InvoiceState) -> None:
        """Closes an invoice with a reference that names the operator; `manage.py invoices close` takes a bank
        reference.
        """
        issuing.close(
            acting=acting, invoice=invoice, state=state, reference=f"by {acting.label}"[:120], now=timezone.now()
        )


@admin.register(LedgerEntry)
class LedgerEntryAdmin(OperatorAdmin):
    """Ledger entries of all tenants, read-only; refunds are recorded on the page of credit balances."""

    when_empty = _("No entry yet. The first invoice is the first entry.")
    symbol = "menu_book"
    list_display = ("posted_at", "tenant", "kind", "invoice", "amount", "balance", "currency", "reference")
    list_filter = ("kind", "currency")
    search_fields = ("tenant__name", "tenant__slug", "invoice__number", "document__number", "reference")
    date_hierarchy = "posted_at"
    ordering = ("-pk",)
    list_select_related = ("tenant", "invoice")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("invoice__inputs")
