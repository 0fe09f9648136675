"""Forms for buying, resizing, costs and budgets. Limits are decided by plans and services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.utils.translation import gettext_lazy as _
from django_countries import countries

from billing.models import Plan
from billing.models.agreements import (
    ADDRESS_CHARS_MAX,
    DISCOUNT_CODE_CHARS_MAX,
    EMAIL_CHARS_MAX,
    EMAILS_MAX,
    EMAILS_SEPARATOR,
    PURCHASE_ORDER_CHARS_MAX,
    TAX_ID_CHARS_MAX,
    validate_address,
    validate_emails,
    validate_line,
)
from billing.models.agreements import NAME_CHARS_MAX as BILLING_NAME_CHARS_MAX
from billing.models.budgets import NAME_CHARS_MAX as BUDGET_NAME_CHARS_MAX
from billing.models.budgets import SMALLEST
from instances.choices import ClusterType
from instances.limits import BANDWIDTH_MB_S_MAX, NAME_CHARS_MAX, NAME_PATTERN, STORAGE_GB_MAX


class SizeForm(forms.Form):
    """Plan, bandwidth and storage: the common fields of `CreateForm` and of resizing."""

    plan = forms.ChoiceField(label=_("Plan"), choices=())
    bandwidth_mb_s = forms.IntegerField(
        label=_("Bandwidth"), min_value=1, max_value=BANDWIDTH_MB_S_MAX,
        help_text=_("Over the limit, clients are delayed, never refused."),
    )  # fmt: skip
    storage_gb = forms.IntegerField(
        label=_("Storage"), min_value=1, max_value=STORAGE_GB_MAX,
        help_text=_(
            "All replicas count. When it is full, produce is refused with a clear error; reads and deletes work."
        ),
    )  # fmt: skip

    def __init__(self, *args: Any, plans: list[Plan], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plans = {plan.code: plan for plan in plans}
        self.fields["plan"].choices = [(plan.code, plan.name) for plan in plans]  # type: ignore[attr-defined]

    @property
    def chosen(self) -> Plan | None:
        """Plan that is selected in the form, even if the form is invalid; None if no plan is selected."""
        return self.plans.get(str(self["plan"].value()))

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Bandwidth and storage of the form; None while one of them is invalid."""
        if self.size_errors or self.chosen is None:
            return None
        values = self.cleaned_data if self.is_bound else self.initial
        return values["bandwidth_mb_s"], values["storage_gb"]

    @property
    def size_errors(self) -> list[str]:
        """Errors of the sizes, in the order of the fields."""
        return [str(text) for name in ("bandwidth_mb_s", "storage_gb") for text in self.errors.get(name, ())]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        plan = self.plans.get(values.get("plan", ""))
        if plan is not None:
            self._check_range("bandwidth_mb_s", plan.name, plan.bandwidth_mb_s, plan.bandwidth_mb_s_max, "MB/s")
            self._check_range("storage_gb", plan.name, plan.storage_gb, plan.storage_gb_max, "GB")
        return values

    def _check_range(self, name: str, plan: str, low: int, high: int, unit: str) -> None:
        value = self.cleaned_data.get(name)
        values = {"plan": plan, "low": f"{low:,}", "high": f"{high:,}", "unit": unit}
        if value is not None and value < low:
            self.add_error(
                name,
                _("%(plan)s starts at %(low)s %(unit)s. Enter %(low)s or more, or choose a smaller plan.") % values,
            )
        elif value is not None and value > high:
            self.add_error(
                name, _("%(plan)s ends at %(high)s %(unit)s. Enter %(high)s or less, or choose a larger plan.") % values
            )


class CreateForm(SizeForm):
    name = forms.RegexField(
        NAME_PATTERN, label=_("Name"), max_length=NAME_CHARS_MAX,
        help_text=_("You can rename it; the id and the messages stay."),
        error_messages={"invalid": _("Use a to z, digits and dashes, beginning with a letter.")},
    )  # fmt: skip
    cluster_type = forms.ChoiceField(
        label=_("Cluster"), choices=ClusterType.choices, initial=ClusterType.SHARED, required=False
    )
    protected = forms.BooleanField(label=_("Protect against deletion"), required=False)
    auto_create_topics = forms.BooleanField(
        label=_("Create topics when a client first uses them"), required=False, initial=True
    )


class SpanForm(forms.Form):
    """Time span and grouping of usage: hours of the last days or minutes of the last hours."""

    span = forms.ChoiceField(
        choices=(("3h", _("3 h")), ("24h", _("24 h")), ("7d", _("7 d")), ("30d", _("30 d"))), required=False
    )
    by = forms.ChoiceField(
        choices=(("topic", _("Topic")), ("client_id", _("Client")), ("user", _("User"))), required=False
    )


class CostForm(forms.Form):
    """Month (UTC) and grouping of costs."""

    month = forms.RegexField(r"^20\d\d-(0[1-9]|1[0-2])$", required=False)
    by = forms.ChoiceField(
        choices=(
            ("instance", _("Instance")),
            ("day", _("Day")),
            ("topic", _("Topic")),
            ("client_id", _("Client")),
            ("user", _("User")),
        ),
        required=False,
    )


class BudgetForm(forms.Form):
    """Budget of one instance or of all instances."""

    name = forms.CharField(label=_("Name"), max_length=BUDGET_NAME_CHARS_MAX)
    amount = forms.DecimalField(
        label=_("Per month"), max_digits=13, decimal_places=3, min_value=SMALLEST,
        help_text=_("Before tax, in your currency."),
    )  # fmt: skip
    instance_id = forms.ChoiceField(label=_("Of"), required=False)

    def __init__(self, *args: Any, instances: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        instance_field = cast(forms.ChoiceField, self.fields["instance_id"])
        instance_field.choices = [("", _("All instances")), *sorted(instances.items(), key=lambda item: item[1])]


class BudgetChangeForm(forms.Form):
    """Name and amount of an existing budget, whose instance cannot be changed."""

    name = forms.CharField(label=_("Name"), max_length=BUDGET_NAME_CHARS_MAX)
    amount = forms.DecimalField(
        label=_("Per month"), max_digits=13, decimal_places=3, min_value=SMALLEST,
        help_text=_("Before tax, in your currency. A new amount begins the alerts of the month anew."),
    )  # fmt: skip


def country_choices() -> list[tuple[str, str]]:
    """Returns the codes of all countries with their names in the reader's language, after an empty choice."""
    return [("", "—"), *((country.code, country.name) for country in countries)]


class BillingDetailsForm(forms.Form):
    """Billing details of a tenant."""

    legal_name = forms.CharField(
        label=_("Legal name"), max_length=BILLING_NAME_CHARS_MAX, required=False, validators=(validate_line,)
    )
    address = forms.CharField(
        label=_("Address"), max_length=ADDRESS_CHARS_MAX, required=False, widget=forms.Textarea(attrs={"rows": 5}),
        validators=(validate_address,),
    )  # fmt: skip
    country = forms.ChoiceField(
        label=_("Country"), required=False, choices=country_choices,
        help_text=_("Electronic invoices need it."),
    )  # fmt: skip
    tax_id = forms.CharField(
        label=_("Tax id"), max_length=TAX_ID_CHARS_MAX, required=False, validators=(validate_line,)
    )
    email = forms.CharField(
        label=_("Invoices go to"), required=False, validators=(validate_emails,),
        max_length=EMAILS_MAX * (EMAIL_CHARS_MAX + len(EMAILS_SEPARATOR)),
        help_text=_("Up to 5 addresses, with commas between them. Without one: owners and finance."),
    )  # fmt: skip
    purchase_order = forms.CharField(
        label=_("Purchase order"), max_length=PURCHASE_ORDER_CHARS_MAX, required=False, validators=(validate_line,),
        help_text=_("Your number of the order. It stands on each invoice."),
    )  # fmt: skip


class CouponForm(forms.Form):
    """Code of a coupon."""

    code = forms.CharField(label=_("Code"), max_length=DISCOUNT_CODE_CHARS_MAX)
