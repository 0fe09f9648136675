"""Screenshots of the operator's pages of money, in both themes and at every width."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.cache import cache
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from billing import services
from billing.invoices import month_runs
from billing.invoices.month_runs import MonthRun, RunKind, RunState
from billing.invoices.periods import month_before, month_of
from billing.lake import outcomes
from billing.ledger import posting
from billing.models import InvoiceKind, InvoiceLine, InvoiceReminder, LakeFile, LedgerKind
from billing.reporting import margins
from tenants.models import Tenant, User
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.testkit.api_cases import make_member
from tests.testkit.billing import create_operations, create_usage, invoice_of
from tests.testkit.depth import THEMES
from tests.testkit.fleet import make_fleet, make_instance, place

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PASSWORD = "a long enough passphrase"
WIDTHS = (1280, 768, 360)
NOW = datetime.now(UTC)
LAST = month_before(month_of(NOW))
NAMES = ("Acme Payments GmbH", "Beta Logistics", "Corvus Analytics", "D" * 60, "北方物流", "Eider")


@pytest.fixture
def year_of_invoices(transactional_db: None, tmp_path: Path) -> None:
    """A year of invoices of six tenants in two currencies, with debts of every age, and a fully sold fleet."""
    cache.clear()
    services.ensure_default_plans()
    cluster = make_fleet(tmp_path, brokers=3, name="eu-1")
    make_fleet(tmp_path, brokers=1, name="us-1")
    for number, name in enumerate(NAMES):
        tenant = make_member().tenant
        Tenant.objects.filter(pk=tenant.pk).update(name=name)
        instance = make_instance(tenant, plan="brook", name=f"orders-{number}", bandwidth_mb_s=200, storage_gb=100)
        place(instance, cluster)
        create_operations(instance, LAST.start)
        create_usage(instance.pk, NOW - timedelta(hours=3), produce=3_600 * 10**6 * 40)
        _a_year(tenant, number, instance.pk)
    margins.store_use(NOW)


def _a_year(tenant: Tenant, number: int, instance_id: str) -> None:
    month = LAST if number else month_before(LAST)
    for age in range(11):
        due = month.end + timedelta(days=14)
        made = invoice_of(
            tenant, f"PS-{number}-{age:02d}", due, f"{(number + 1) * 1234 - age * 90}.50", period_start=month.start,
            currency="USD" if number == 4 else "EUR",
        )  # fmt: skip
        InvoiceLine.objects.create(
            invoice=made, position=1, kind="usage", plan="brook", instance_id=instance_id, start=month.start,
            end=month.end, quantity=1, unit_price=made.total, amount=made.total,
        )  # fmt: skip
        if age % 3 == 1:
            InvoiceReminder.objects.create(invoice=made, number=1, sent_at=due + timedelta(days=3))
        elif age % 3 == 2:
            made.state, made.closed_at, made.reference = "paid", due, "bank"
            made.save()
        month = month_before(month)
    invoice_of(
        tenant, f"PSC-{number}", NOW, "-12.00", kind=InvoiceKind.CREDIT_NOTE, corrects=made, currency=made.currency,
        period_start=LAST.start,
    )  # fmt: skip
    if number < len(NAMES) - 1:  # the last one has debts that stay open when one is paid
        posting.post(tenant, made.currency, LedgerKind.PAYMENT, Decimal("-1234567.50"), now=NOW, reference="bank")


def signed_in(page: Page, live_server: LiveServer) -> None:
    User.objects.create_superuser("ops@example.com", PASSWORD)
    page.goto(f"{live_server.url}/operator/login/")
    page.fill("input[name=username]", "ops@example.com")
    page.fill("input[name=password]", PASSWORD)
    page.locator("button[type=submit]").click()
    page.wait_for_url(f"{live_server.url}/operator/")


def drawn_whole(page: Page, name: str, picture: Callable[[Page, str], Path]) -> None:
    assert objections(page, within=".fleet") == []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        picture(page, f"{name}-{width}")
        assert page.evaluate("document.querySelector('.fleet').scrollWidth <= document.documentElement.clientWidth")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize("theme", THEMES)
def test_the_pages_of_money_are_drawn_whole(
    theme: str,
    live_server: LiveServer,
    year_of_invoices: None,
    open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:
    page = open_page(theme=theme)
    signed_in(page, live_server)
    for name in ("revenue/?month=all", "revenue/?by=plan", "overdue/", "credits/", "margins/", "month/"):
        page.goto(f"{live_server.url}/operator/billing/invoice/{name}")
        expect(page.locator(".fleet .title")).to_be_visible()
        word = name.strip("/").replace("/?", "-").replace("=", "-")
        drawn_whole(page, f"money-{word}-{theme}", picture)


@pytest.mark.parametrize("theme", THEMES)
def test_an_invoice_is_marked_as_paid_from_the_list_of_debts(
    theme: str,
    live_server: LiveServer,
    year_of_invoices: None,
    open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:
    page = open_page(theme=theme)
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/billing/invoice/overdue/?q=Eider&age=over-90")
    before = page.locator("tbody tr", has_text="PS-5-").count()
    page.get_by_role("link", name="Mark as paid").first.click()
    expect(page.get_by_label("Reference")).to_be_visible()
    drawn_whole(page, f"money-paid-{theme}", picture)
    page.get_by_label("Reference").fill("bank 7")
    page.get_by_role("button", name="Mark as paid").click()
    expect(page.get_by_text("is paid.")).to_be_visible()
    page.goto(f"{live_server.url}/operator/billing/invoice/overdue/?q=Eider&age=over-90")
    expect(page.locator("tbody tr", has_text="PS-5-")).to_have_count(before - 1)


@pytest.mark.parametrize("theme", THEMES)
def test_a_month_is_issued_by_hand_after_a_page_that_says_what_it_means(
    theme: str,
    live_server: LiveServer,
    year_of_invoices: None,
    open_page: OpenPage,
    picture: Callable[[Page, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    LakeFile.objects.create(path="a", cluster_id="x", day=date(2020, 1, 1), rows=1, added_bytes=1, schema_version=1)
    outcomes.store(LAST.start.date(), 3)
    queued: list[tuple[RunKind, str, str]] = []
    monkeypatch.setattr(month_runs, "enqueue", lambda *values: queued.append(values))
    page = open_page(theme=theme)
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/billing/invoice/month/")
    expect(page.get_by_text(f"{LAST.start:%Y-%m-%d}").first).to_be_visible()
    page.get_by_role("link", name="Issue the month's invoices").click()
    drawn_whole(page, f"money-issue-{theme}", picture)
    page.get_by_role("button", name="Issue them").click()
    expect(page.get_by_text("Invoices are being issued")).to_be_visible()
    ((kind, month, operator),) = queued
    run = month_runs.last_run(kind, month)
    assert isinstance(run, MonthRun) and Decimal(run.percent) == 0
    month_runs.store(
        MonthRun(kind=RunKind.ISSUE, month=month, by="ops@example.com", state=RunState.RUNNING, started_at=NOW,
                 noted_at=datetime.now(UTC), done=340, total=1_000)
    )  # fmt: skip
    expect(page.get_by_text("340 of 1,000 tenants")).to_be_visible()
    drawn_whole(page, f"money-issuing-{theme}", picture)
    month_runs.run(kind, month, operator)
    expect(page.get_by_text("Invoices were issued by hand")).to_be_visible()
    drawn_whole(page, f"money-issued-{theme}", picture)
