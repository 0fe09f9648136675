"""The operator's pages of money: their figures, permissions, and the audit rows of their actions."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from billing import services
from billing.invoices import closing, month_runs
from billing.invoices.month_runs import RunKind
from billing.invoices.periods import month_before, month_of
from billing.models import Invoice, InvoiceKind, InvoiceLine, InvoiceReminder
from billing.reporting import margins, overdue, revenue
from billing.reporting.overdue import Age
from tenants.models import AuditEntry, Tenant, User
from tests.testkit.api_cases import make_member, make_user
from tests.testkit.billing import create_operations, create_usage, invoice_of
from tests.testkit.fleet import make_fleet, make_instance, place
from tests.testkit.instances import make_instance as make_brook

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
LAST_MONTH = month_before(month_of(NOW))
PAGES = ("billing_revenue", "billing_overdue", "billing_margins", "billing_month")
CHINESE = dict(zip(PAGES, ("收入", "逾期", "利润", "月结"), strict=True))
FILES = ("billing_revenue_csv", "billing_overdue_csv")


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    cache.clear()


@pytest.fixture()
def panel() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client


def staff(*codenames: str) -> Client:
    """Returns a signed-in operator with these permissions only."""
    looker, client = make_user(is_staff=True), Client()
    looker.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(looker)
    return client


def text_of(panel: Client, name: str, asked: str = "") -> str:
    answer = panel.get(reverse(f"admin:{name}") + asked)
    assert answer.status_code == 200
    return answer.content.decode()


def rows_of(panel: Client, name: str, asked: str = "") -> list[dict[str, str]]:
    answer = panel.get(reverse(f"admin:{name}") + asked)
    assert answer.status_code == 200
    content = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    return list(csv.DictReader(io.StringIO(content)))


def invoiced(
    tenant: Tenant, number: str, amount: str, *, month: datetime = LAST_MONTH.start, plan: str = "brook",
    corrects: Invoice | None = None, currency: str = "EUR",
) -> Invoice:  # fmt: skip
    """Creates an invoice of a month with one line, or a credit note."""
    due = month_of(month).end + timedelta(days=14)
    kind = InvoiceKind.INVOICE if corrects is None else InvoiceKind.CREDIT_NOTE
    made = invoice_of(tenant, number, due, amount, period_start=month, kind=kind, corrects=corrects, currency=currency)
    InvoiceLine.objects.create(
        invoice=made, position=1, kind="usage", plan=plan, start=month, end=due, quantity=1, unit_price=amount,
        amount=amount,
    )  # fmt: skip
    return made


# --- who sees them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAGES, *FILES, "billing_month_issue"])
def test_tenants_and_staff_that_may_not_see_invoices_do_not_reach_money(name: str) -> None:
    owner, stranger = Client(), Client()
    owner.force_login(make_member().user)
    for client in (owner, stranger):
        answer = client.get(reverse(f"admin:{name}"))
        assert (answer.status_code, "/login" in answer["Location"]) == (302, True)
    assert staff("view_cluster", "view_tenant", "add_invoice").get(reverse(f"admin:{name}")).status_code == 403


def test_tenants_reach_no_act_either() -> None:
    invoice = invoice_of(make_member().tenant)
    client = Client()
    client.force_login(make_member().user)
    for name, values in (("billing_month_issue", ()), ("billing_month_late", ()), ("billing_mark_paid", [invoice.pk])):
        answer = client.post(reverse(f"admin:{name}", args=values), {"reference": "mine"})
        assert (answer.status_code, "/login" in answer["Location"]) == (302, True)
    invoice.refresh_from_db()
    assert invoice.state == "issued"


def test_an_operator_who_may_view_invoices_sees_the_pages_and_may_do_nothing() -> None:
    invoice = invoice_of(make_member().tenant)
    looker = staff("view_invoice")
    for name in PAGES:
        assert looker.get(reverse(f"admin:{name}")).status_code == 200
    assert "Mark as paid" not in text_of(looker, "billing_overdue")
    assert "Issue the month" not in text_of(looker, "billing_month")
    assert looker.post(reverse("admin:billing_mark_paid", args=[invoice.pk]), {"reference": "x"}).status_code == 403
    assert looker.post(reverse("admin:billing_month_issue")).status_code == 403
    assert looker.post(reverse("admin:billing_month_late")).status_code == 403


def test_the_navigation_has_the_pages_only_for_operators_who_may_see_them() -> None:
    assert reverse("admin:billing_revenue") in staff("view_invoice").get(reverse("admin:index")).content.decode()
    assert reverse("admin:billing_revenue") not in staff("view_plan").get(reverse("admin:index")).content.decode()


@pytest.mark.parametrize("name", PAGES)
def test_pages_without_anything_say_so_in_both_languages(panel: Client, name: str) -> None:
    assert 'class="empty"' in text_of(panel, name) or name == "billing_month"
    answer = panel.get(reverse(f"admin:{name}"), headers={"accept-language": "zh-hans"})
    assert answer.status_code == 200
    assert CHINESE[name] in answer.content.decode()


@pytest.mark.parametrize("name", [*PAGES, *FILES])
@pytest.mark.parametrize(
    "asked",
    ["?month=9999-99", "?month=0000-01", "?month=0001-01", "?page=-3&by=x&q=" + "%25" * 300, "?age=x&currency=%27;"],
)
def test_any_query_gets_an_answer(panel: Client, name: str, asked: str) -> None:
    assert panel.get(reverse(f"admin:{name}") + asked).status_code == 200


# --- revenue ----------------------------------------------------------------------------------------------------------


def test_rows_over_all_pages_sum_to_the_totals_by_tenant_and_by_plan(panel: Client) -> None:
    chance = random.Random(7)
    for number in range(60):
        tenant = make_member().tenant
        Tenant.objects.filter(pk=tenant.pk).update(name=f"Tenant {number:02d}", currency="EUR")
        first = invoiced(tenant, f"PS-{number}", f"{chance.randint(1, 10**6) / 100:.2f}", plan="brook")
        if number % 7 == 0:
            invoiced(tenant, f"PSC-{number}", "-0.01", corrects=first, plan="")
    whole = sum(Invoice.objects.values_list("subtotal", flat=True))
    for by in ("tenant", "plan"):
        rows = rows_of(panel, "billing_revenue_csv", f"?by={by}")
        assert sum(Decimal(row["revenue"]) for row in rows) == whole
        (total,) = panel.get(reverse("admin:billing_revenue") + f"?by={by}").context["totals"]
        assert (total.revenue, total.rows) == (whole, len(rows))
    first_page, second_page = (text_of(panel, "billing_revenue", f"?page={page}") for page in (1, 2))
    names = {f"Tenant {number:02d}" for number in range(60)}
    assert sum(name in first_page for name in names) == 50
    assert sum(name in second_page for name in names) == 10
    by_month = revenue.revenue_by_month(revenue.months_until(NOW))
    assert by_month == {("EUR", LAST_MONTH.start): whole}


def test_twelve_months_are_one_line_a_tenant_on_the_page_and_one_a_month_in_the_file(panel: Client) -> None:
    tenant, month = make_member().tenant, LAST_MONTH
    for number in range(3):
        invoiced(tenant, f"PS-{number}", "10.00", month=month.start)
        month = month_before(month)
    assert "€ 30.00" in text_of(panel, "billing_revenue", "?month=all")
    assert [row["revenue"] for row in rows_of(panel, "billing_revenue_csv", "?month=all")] == ["10.00"] * 3
    assert "€ 30.00" not in text_of(panel, "billing_revenue")


def test_currencies_are_never_added_up_and_one_may_be_chosen(panel: Client) -> None:
    for number, currency in enumerate(("EUR", "USD")):
        invoiced(make_member().tenant, f"PS-{number}", "5.00", currency=currency)
    answer = panel.get(reverse("admin:billing_revenue"))
    assert [(each.currency, each.revenue) for each in answer.context["totals"]] == [
        ("EUR", Decimal("5.00")), ("USD", Decimal("5.00")),
    ]  # fmt: skip
    assert [row["currency"] for row in rows_of(panel, "billing_revenue_csv", "?currency=USD")] == ["USD"]


def test_a_search_finds_tenants_by_their_names_and_says_when_none_is_found(panel: Client) -> None:
    tenant = make_member().tenant
    invoiced(tenant, "PS-1", "5.00")
    assert tenant.slug in text_of(panel, "billing_revenue", f"?q={tenant.slug}")
    assert "Nothing matches." in text_of(panel, "billing_revenue", "?q=nobody-at-all")


def test_names_that_are_formulas_are_inert_in_files(panel: Client) -> None:
    tenant = make_member().tenant
    Tenant.objects.filter(pk=tenant.pk).update(name="=cmd|'/c calc'!A1")
    invoiced(tenant, "PS-1", "5.00", month=month_before(LAST_MONTH).start)
    month = f"{month_before(LAST_MONTH).start:%Y-%m}"
    assert rows_of(panel, "billing_revenue_csv", f"?month={month}")[0]["name"] == "'=cmd|'/c calc'!A1"
    assert rows_of(panel, "billing_overdue_csv")[0]["name"] == "'=cmd|'/c calc'!A1"


def test_sizes_that_are_sold_say_what_a_month_of_them_brings(panel: Client) -> None:
    services.ensure_default_plans()
    tenant = make_member().tenant
    assert revenue.running_rates() == []
    make_brook(tenant)
    (one,) = revenue.running_rates()
    make_brook(tenant)
    make_brook(tenant, phase="failed")
    make_brook(tenant, phase="suspended", suspended_for="unpaid")
    (two,) = revenue.running_rates()
    assert one.per_hour > 0 and two.per_hour == 2 * one.per_hour
    assert "A month of the present sizes" in text_of(panel, "billing_revenue")


def test_many_tenants_cost_no_more_queries_than_few(
    panel: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(30):
        invoiced(make_member().tenant, f"PS-{number}", "5.00")
    for name, most in (("billing_revenue", 16), ("billing_overdue", 14), ("billing_month", 40)):
        with django_assert_max_num_queries(most):
            text_of(panel, name)


# --- overdue ----------------------------------------------------------------------------------------------------------


def owed(days: int, number: str, amount: str = "10.00") -> Invoice:
    """Creates an invoice of a new tenant that is overdue for full days."""
    return invoice_of(make_member().tenant, number, NOW - timedelta(days=days, minutes=1), amount)


def test_open_amounts_are_split_by_age_and_the_oldest_debt_comes_first(panel: Client) -> None:
    for number, days in enumerate((1, 30, 31, 75, 91, 400)):
        owed(days, f"PS-{number}", f"{number + 1}.00")
    owed(-5, "PS-not-due")
    paid = owed(50, "PS-paid")
    paid.state, paid.closed_at, paid.reference = "paid", NOW, "bank"
    paid.save()
    assert [row["number"] for row in rows_of(panel, "billing_overdue_csv")] == [f"PS-{n}" for n in (5, 4, 3, 2, 1, 0)]
    (debt,) = overdue.receivables(overdue.sums_by_age(timezone.now()))
    assert [(each.invoices, each.open_amount) for each in debt.ages] == [(2, 3), (1, 3), (1, 4), (2, 11)]
    for age in Age:
        rows = rows_of(panel, "billing_overdue_csv", f"?age={age}")
        (own,) = [each for each in debt.ages if each.age == age]
        assert sum(Decimal(row["open_amount"]) for row in rows) == own.open_amount
    page = text_of(panel, "billing_overdue", f"?age={Age.OVER_90}")
    assert "PS-5" in page and "PS-0" not in page and "€ 21.00" in page


def test_reminders_suspension_and_credited_amounts_are_shown(panel: Client) -> None:
    invoice = owed(20, "PS-1")
    InvoiceReminder.objects.create(invoice=invoice, number=2, sent_at=NOW)
    Tenant.objects.filter(pk=invoice.tenant_id).update(status="suspended", suspension_reason="unpaid")
    invoice_of(invoice.tenant, "PSC-1", NOW, "-4.00", kind=InvoiceKind.CREDIT_NOTE, corrects=invoice)
    (row,) = rows_of(panel, "billing_overdue_csv")
    assert (row["open_amount"], row["reminders"], row["suspended"], row["days_overdue"]) == ("6.00", "2", "1", "20")
    page = text_of(panel, "billing_overdue")
    assert "of € 10.00" in page and "suspended" in page


def test_an_invoice_is_marked_as_paid_with_its_reference_and_an_audit_row(panel: Client) -> None:
    invoice = owed(20, "PS-1")
    address = reverse("admin:billing_mark_paid", args=[invoice.pk])
    assert "cannot be undone" in panel.get(address).content.decode()
    assert "Say by which payment" in panel.post(address, {"reference": " "}).content.decode()
    answer = panel.post(address, {"reference": "bank 7"}, follow=True)
    assert "PS-1 is paid." in answer.content.decode()
    invoice.refresh_from_db()
    assert (invoice.state, invoice.reference) == ("paid", "bank 7")
    entry = AuditEntry.objects.get(action="invoice.paid", tenant=invoice.tenant)
    assert entry.actor_kind == "operator"
    assert panel.get(address).status_code == 404, "it is closed"


# --- margins ----------------------------------------------------------------------------------------------------------


def test_margins_are_sold_against_capacity_and_used_once_the_task_has_run(panel: Client, tmp_path: Path) -> None:
    cluster, tenant = make_fleet(tmp_path, brokers=3), make_member().tenant
    instance = make_instance(tenant, bandwidth_mb_s=900, storage_gb=300)
    place(instance, cluster)
    page = text_of(panel, "billing_margins")
    assert cluster.name in page and "900 MB/s" in page and "0.30" in page
    assert "What was used is not known yet" in page
    create_usage(instance.pk, NOW - timedelta(hours=2), produce=3_600 * 10**6 * 30)
    line = invoiced(tenant, "PS-1", "450.00").lines.get()
    InvoiceLine.objects.create(
        invoice=line.invoice, position=2, kind="usage", instance_id=instance.pk, start=line.start, end=line.end,
        quantity=1, unit_price=450, amount=450,
    )  # fmt: skip
    margins.store_use(NOW)
    page = text_of(panel, "billing_margins")
    assert "30.0 MB/s" in page and "What was used is not known yet" not in page
    assert "€ 450.00" in page and "€ 0.50" in page


# --- closing a month --------------------------------------------------------------------------------------------------


def test_issuing_by_hand_asks_first_and_is_done_once_with_an_audit_row(
    panel: Client, django_capture_on_commit_callbacks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    services.ensure_default_plans()
    tenants = [make_member().tenant for _ in range(2)]
    for tenant in tenants:
        create_operations(make_brook(tenant), LAST_MONTH.start)
    month, address = f"{LAST_MONTH.start:%Y-%m}", reverse("admin:billing_month_issue")
    asked: list[Any] = []
    monkeypatch.setattr(month_runs, "enqueue", lambda *values: asked.append(values))
    assert "Tenants without an invoice of this month: 2." in panel.get(f"{address}?month={month}").content.decode()
    assert not Invoice.objects.exists()
    with django_capture_on_commit_callbacks(execute=True):
        page = panel.post(address, {"month": month}, follow=True).content.decode()
    assert "Invoices are being issued" in page
    with django_capture_on_commit_callbacks(execute=True):
        assert "This runs already." in panel.post(address, {"month": month}, follow=True).content.decode()
    (values,) = asked
    entry = AuditEntry.objects.get(action="month.issue_started")
    assert (entry.target_id, entry.actor_kind, entry.actor_label) == (month, "operator", "ops@example.com")

    month_runs.run(*values)
    month_runs.run(*values)
    assert {invoice.tenant_id for invoice in Invoice.objects.all()} == {tenant.pk for tenant in tenants}
    assert {each.actor_label for each in AuditEntry.objects.filter(action="invoice.issued")} == {"ops@example.com"}
    assert "Tenants that had nothing to charge: 0." in text_of(panel, "billing_month", f"?month={month}")


def test_a_month_that_is_not_over_is_not_issued(panel: Client) -> None:
    month = f"{NOW:%Y-%m}"
    answer = panel.post(reverse("admin:billing_month_issue"), {"month": month}, follow=True)
    assert "The month is not over yet." in answer.content.decode()
    assert not AuditEntry.objects.filter(action="month.issue_started").exists()


def test_an_operator_who_lost_the_right_meanwhile_issues_nothing() -> None:
    services.ensure_default_plans()
    create_operations(make_brook(make_member().tenant), LAST_MONTH.start)
    looker = make_user(is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename="view_invoice"))
    month_runs.run(RunKind.ISSUE, f"{LAST_MONTH.start:%Y-%m}", looker.pk)
    assert not Invoice.objects.exists()


def test_usage_that_came_late_is_found_and_nothing_is_written(panel: Client) -> None:
    services.ensure_default_plans()
    tenant = make_member().tenant
    create_operations(make_brook(tenant), LAST_MONTH.start)
    closing.close_month(NOW)
    create_operations(make_brook(tenant), LAST_MONTH.start)
    month = f"{LAST_MONTH.start:%Y-%m}"
    month_runs.run(RunKind.LATE, month, User.objects.get(email="ops@example.com").pk)
    page = text_of(panel, "billing_month", f"?month={month}")
    assert "Next invoices that correct earlier ones: 1." in page and tenant.slug in page
    assert Invoice.objects.count() == 1
