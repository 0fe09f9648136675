"""Reads: matters of billing that need an operator, each with a sentence and a link. No bill is computed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.models import ActionItem, Payment, Plan, Price
from billing.reporting import overdue
from brokers.limits import NEEDS_OF_A_KIND_MAX
from brokers.monitoring.attention import OperatorActionItem
from instances.lifecycle.phases import COUNTED
from instances.models import Instance
from tenants.formatting import money


def billing_action_items(now: datetime) -> Iterator[OperatorActionItem]:
    """Yields needs of billing: faults of tenants, missing prices, payments with problems and overdue invoices."""
    yield from _tenant_faults()
    yield from _missing_prices(now)
    yield from _payments_with_problems()
    yield from _overdue_invoices(now)


def _tenant_faults() -> Iterator[OperatorActionItem]:
    items = ActionItem.objects.select_related("tenant").order_by("first_at", "pk")
    for item in items[:NEEDS_OF_A_KIND_MAX]:
        values = {"tenant": item.tenant.name, "what": item.get_kind_display(), "detail": item.detail}
        text = _("%(tenant)s: %(what)s. %(detail)s") if item.detail else _("%(tenant)s: %(what)s.")
        yield OperatorActionItem(
            text=text % values, link=reverse("admin:billing_actionitem_changelist"), act=_("See the action items")
        )


def _missing_prices(now: datetime) -> Iterator[OperatorActionItem]:
    begun = Price.objects.filter(plan=OuterRef("pk"), effective_from__lte=now)
    names = list(Plan.objects.filter(~Exists(begun), on_sale=True).values_list("name", flat=True))
    if names:
        yield OperatorActionItem(
            text=_("Plans marked as on sale that nobody can buy, for want of a price: %(names)s.")
            % {"names": ", ".join(names[:NEEDS_OF_A_KIND_MAX])},
            link=reverse("admin:billing_plan_changelist"), act=_("Add a price"), is_now=False,
        )  # fmt: skip
    priced = Price.objects.filter(plan=OuterRef("plan"), currency=OuterRef("tenant__currency"), effective_from__lte=now)
    rows = Instance.objects.filter(~Exists(priced), phase__in=[phase.value for phase in COUNTED]).order_by()
    count = rows.count()
    if count:
        pairs = sorted(set(rows.values_list("plan", "tenant__currency")[: NEEDS_OF_A_KIND_MAX * 10]))
        text = ngettext(
            "%(n)s instance has no price, and its tenant gets no invoice: %(plans)s.",
            "%(n)s instances have no price, and their tenants get no invoice: %(plans)s.",
            count,
        )
        plans = ", ".join(f"{plan} ({currency})" for plan, currency in pairs[:NEEDS_OF_A_KIND_MAX])
        yield OperatorActionItem(
            text=text % {"n": f"{count:,}", "plans": plans}, link=reverse("admin:billing_plan_changelist"),
            act=_("Add a price"),
        )  # fmt: skip


def _payments_with_problems() -> Iterator[OperatorActionItem]:
    count = Payment.objects.exclude(problem="").filter(handled_at=None).count()
    if count:
        text = ngettext("%(n)s payment does not fit.", "%(n)s payments do not fit.", count)
        yield OperatorActionItem(
            text=text % {"n": f"{count:,}"}, act=_("See the payments"), is_now=False,
            link=reverse("admin:billing_payment_changelist") + "?handled_at__isempty=1",
        )  # fmt: skip


def _overdue_invoices(now: datetime) -> Iterator[OperatorActionItem]:
    receivables = overdue.receivables(overdue.sums_by_age(now))
    if not receivables:
        return
    oldest = overdue.overdue(now).values_list("due_at", flat=True)[0]
    count = sum(receivable.invoices for receivable in receivables)
    text = ngettext(
        "%(n)s invoice is overdue, for %(days)s days: %(sums)s.",
        "%(n)s invoices are overdue, the oldest for %(days)s days: %(sums)s.",
        count,
    )
    sums = ", ".join(
        str(money(receivable.open_amount, receivable.currency)) for receivable in receivables[:NEEDS_OF_A_KIND_MAX]
    )
    yield OperatorActionItem(
        text=text % {"n": f"{count:,}", "days": f"{(now - oldest).days:,}", "sums": sums},
        link=reverse("admin:billing_overdue"), act=_("See what is overdue"), is_now=False,
    )  # fmt: skip
