"""Pages of usage, cost and invoices: they agree with the bill, and each tenant sees its own only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from billing.invoices import issuing
from billing.invoices.periods import month_before, month_of
from billing.models import Invoice, Price, PriceComponent
from instances.models import Instance, Operation
from tenants.actors import system_actor
from tenants.models import Member
from tests.testkit.billing import create_operations, create_usage

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
LAST_MONTH = month_before(month_of(NOW))
GB = 10**9


@pytest.fixture
def invoice(instance: Instance) -> Invoice:
    """Last month's invoice: one instance, and 100 GB at two cents from a client whose name is a formula."""
    price = Price.objects.create(
        plan_id=instance.plan, effective_from=LAST_MONTH.start, base_per_hour=Decimal("0.06"),
        per_mb_s_hour=Decimal("0.009"), per_gb_hour=Decimal("0.0002"),
    )  # fmt: skip
    PriceComponent.objects.create(price=price, meter="bytes_in", tiers=[[None, "0.02", "0"]])
    Operation.objects.filter(instance=instance).delete()
    create_operations(instance, LAST_MONTH.start)
    create_usage(instance.pk, LAST_MONTH.start + timedelta(hours=1), produce=100 * GB, client_id="=cmd()")
    made = issuing.issue(acting=system_actor("test"), tenant=instance.tenant, period=LAST_MONTH, now=NOW)
    assert made is not None
    return made


def test_before_the_first_invoice_the_page_says_when_it_comes(ida: Client, instance: Instance) -> None:
    message = ida.get(reverse("page-invoices")).content.decode()
    assert "No invoice yet" in message
    assert f"First invoice on {month_of(NOW).end:%Y-%m-%d}" in message


def test_an_invoice_is_listed_with_what_is_open_and_opens_to_lines_and_hours(ida: Client, invoice: Invoice) -> None:
    listed = ida.get(reverse("page-invoices")).content.decode()
    opened = ida.get(reverse("page-invoice", args=[invoice.pk])).content.decode()
    hours = ida.get(reverse("page-invoice-line", args=[invoice.pk, 2])).content.decode()

    assert invoice.number in listed and str(invoice.total) in listed and "Open" in listed
    assert "bytes_in" in opened and "2.00" in opened
    assert "100,000,000,000" in hours and f"{LAST_MONTH.start:%Y-%m-%d} 01:00" in hours


def test_pages_say_how_many_hours_of_the_month_a_line_and_a_cost_are_for(ida: Client, instance: Instance) -> None:
    price = Price.objects.create(
        plan_id=instance.plan, effective_from=LAST_MONTH.start, base_per_hour=Decimal("0.06"),
        per_mb_s_hour=Decimal("0.009"), per_gb_hour=Decimal("0.000207"),
    )  # fmt: skip
    tiers = [[None, "0.000142", "0"]]
    PriceComponent.objects.create(price=price, meter="bytes_in", tiers=tiers, commit=Decimal(50_000))
    Operation.objects.filter(instance=instance).delete()
    create_operations(instance, LAST_MONTH.start, LAST_MONTH.start + timedelta(hours=24))
    made = issuing.issue(acting=system_actor("test"), tenant=instance.tenant, period=LAST_MONTH, now=NOW)
    assert made is not None
    month = (LAST_MONTH.end - LAST_MONTH.start) // timedelta(hours=1)
    words = f"24 of {month} hours"

    opened = ida.get(reverse("page-invoice", args=[made.pk])).content.decode()
    line = ida.get(reverse("page-invoice-line", args=[made.pk, 2])).content.decode()
    costs = ida.get(reverse("page-account-usage"), {"month": f"{LAST_MONTH.start:%Y-%m}"}).content.decode()
    file = ida.get(reverse("page-invoice-csv", args=[made.pk])).getvalue().decode()  # type: ignore[attr-defined]

    assert words in opened and words in line and words in costs
    # All decimals of quantity and price: their product is the amount.
    assert "€ 0.000142" in opened and "€ 0.000142" in line
    assert file.splitlines()[2].endswith(f",24,{month},0.00")


def test_recompute_says_equal_to_the_cent_or_names_what_came_late(ida: Client, invoice: Invoice) -> None:
    at = reverse("page-invoice", args=[invoice.pk]) + "?recompute"
    assert "equal to the cent" in ida.get(at).content.decode()

    create_usage(invoice.lines.all()[0].instance_id, LAST_MONTH.start + timedelta(hours=2), produce=50 * GB)

    message = ida.get(at).content.decode()
    assert "it differs" in message and "bytes_in" in message


@pytest.mark.parametrize("by", ["instance", "day", "topic", "client_id", "user"])
def test_the_month_that_was_invoiced_costs_what_the_invoice_says(ida: Client, invoice: Invoice, by: str) -> None:
    message = ida.get(reverse("page-account-usage") + f"?month={LAST_MONTH.start:%Y-%m}&by={by}").content.decode()
    assert f"{invoice.subtotal:,}" in message


def test_this_month_shows_what_is_due_so_far_and_a_forecast(ida: Client, invoice: Invoice) -> None:
    message = ida.get(reverse("page-account-usage")).content.decode()
    assert "So far this month" in message and "Forecast for the month" in message


@pytest.mark.parametrize("query", ["?month=2026-13&by=topic", "?month=9999-01", "?by=nonsense", "?month=<script>"])
def test_an_invalid_month_shows_the_current_one(ida: Client, invoice: Invoice, query: str) -> None:
    answer = ida.get(reverse("page-account-usage") + query)
    assert answer.status_code == 200 and "So far this month" in answer.content.decode()


def test_no_cell_of_the_files_is_a_formula(ida: Client, invoice: Invoice) -> None:
    costs = ida.get(reverse("page-costs-csv") + f"?month={LAST_MONTH.start:%Y-%m}&by=client_id")
    lines = ida.get(reverse("page-invoice-csv", args=[invoice.pk]))
    rows = b"".join(costs.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert any(row.startswith("'=cmd()") for row in rows) and not any(row.startswith("=") for row in rows)
    assert len(b"".join(lines.streaming_content).decode().splitlines()) == 3  # type: ignore[attr-defined]


def test_another_tenants_invoice_is_not_found(
    stranger: Member, browse: Callable[[Member], Client], invoice: Invoice
) -> None:
    client = browse(stranger)
    for page, arguments in (
        ("page-invoice", [invoice.pk]), ("page-invoice-csv", [invoice.pk]), ("page-invoice-pdf", [invoice.pk]),
        ("page-invoice-line", [invoice.pk, 1]),
    ):  # fmt: skip
        assert client.get(reverse(page, args=arguments)).status_code == 404


def test_the_pages_speak_chinese(ida: Client, invoice: Invoice) -> None:
    ida.post("/preferences/", {"language": "zh-hans", "theme": "dark", "next": "/"})
    for page, arguments, words in (
        ("page-invoices", [], "账单"), ("page-invoice", [invoice.pk], "合计"), ("page-account-usage", [], "本月至今"),
    ):  # fmt: skip
        message = ida.get(reverse(page, args=arguments), HTTP_ACCEPT_LANGUAGE="zh-hans").content.decode()
        assert words in message
