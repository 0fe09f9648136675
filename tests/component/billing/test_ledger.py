"""The ledger: its entries sum to the debt after any events of invoices, and no balance is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from itertools import count
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, connections, transaction
from django.db.models import Sum
from django.db.utils import DatabaseError
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.dunning import services as dunning
from billing.invoices import issuing
from billing.ledger import posting
from billing.ledger import services as ledger
from billing.models import Invoice, InvoiceKind, InvoiceState, LedgerEntry, LedgerKind, Payment
from billing.payments import services as payments
from billing.payments.reported import ReportedPayment
from tenants.actors import member_actor, system_actor
from tenants.currencies import rounded
from tenants.errors import Conflict, DomainError, Invalid, PermissionDenied
from tenants.models import AuditEntry, Tenant
from tests.testkit.api_cases import make_member
from tests.testkit.billing import DUE, assert_ledger_is_right
from tests.testkit.depth import examples

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("test")
NOW = datetime(2026, 11, 1, tzinfo=UTC)
CENT = Decimal("0.01")
SERIAL = count(1)


def owed_invoice(tenant: Tenant, net: str = "10.00", tax_percent: int = 0) -> Invoice:
    """Creates an open invoice of a month of its own."""
    number = next(SERIAL)
    tax = rounded(Decimal(net) * tax_percent / 100, "EUR")
    invoice = Invoice.objects.create(
        tenant=tenant, kind=InvoiceKind.INVOICE, number=f"PS-{number}", currency="EUR",
        period_start=DUE + timedelta(days=number), period_end=DUE + timedelta(days=number + 1),
        subtotal=Decimal(net), tax_percent=tax_percent, tax=tax, total=Decimal(net) + tax,
        from_balance=max(Decimal(0), min(posting.credit_balance(tenant, "EUR"), Decimal(net) + tax)),
        seller={"name": "S", "address": "", "tax_id": ""},
        buyer={"name": "B", "address": "", "tax_id": "", "email": "", "tenant": tenant.slug},
        issued_at=NOW, due_at=DUE + timedelta(days=number),
    )  # fmt: skip
    posting.post(tenant, "EUR", LedgerKind.INVOICE, invoice.total, now=NOW, invoice=invoice, document=invoice)
    ledger.apply_credit(acting=SYSTEM, tenant=tenant, currency="EUR", now=NOW)
    return invoice


def credit(invoice: Invoice, amount: str | Decimal) -> Invoice:
    return issuing.credit(acting=SYSTEM, invoice=invoice, amount=Decimal(amount), note="Outage", now=NOW)


def pay(invoice: Invoice, amount: str | Decimal, payment_id: str = "", currency: str = "EUR") -> Payment:
    reported = ReportedPayment(
        payment_id=payment_id or f"pay_{next(SERIAL)}", invoice_number=invoice.number, amount=Decimal(amount),
        currency=currency,
    )  # fmt: skip
    return payments.receive(reported, NOW)


def close(invoice: Invoice, state: InvoiceState = InvoiceState.PAID) -> Invoice:
    return issuing.close(acting=SYSTEM, invoice=invoice, state=state, reference="bank 1", now=NOW)


def refund(tenant: Tenant, amount: str | Decimal, reference: str = "sepa 1", currency: str = "EUR") -> LedgerEntry:
    return ledger.refund(
        acting=SYSTEM, tenant=tenant, currency=currency, amount=Decimal(amount), reference=reference, now=NOW
    )


def state_of(invoice: Invoice) -> str:
    return Invoice.objects.get(pk=invoice.pk).state


def statement(tenant: Tenant) -> list[tuple[str, str, str]]:
    """Returns entries except transfers: kind, amount, balance."""
    rows = LedgerEntry.objects.filter(tenant=tenant).exclude(kind=LedgerKind.TRANSFER).order_by("pk")
    return [(row.kind, str(row.amount), str(row.balance)) for row in rows]


@pytest.fixture()
def tenant() -> Tenant:
    return make_member().tenant


def test_credit_on_a_paid_invoice_goes_to_the_next_one_and_what_is_left_is_refunded(tenant: Tenant) -> None:
    first = owed_invoice(tenant, "44.64")
    pay(first, "44.64")
    credit(first, "12.00")
    assert posting.credit_balance(tenant, "EUR") == Decimal("12.00") and state_of(first) == "paid"

    second = owed_invoice(tenant, "10.00")

    assert second.from_balance == Decimal("10.00") and state_of(second) == "settled"
    assert posting.credit_balance(tenant, "EUR") == Decimal("2.00")
    refund(tenant, "2.00")
    assert statement(tenant) == [
        ("invoice", "44.64", "44.64"),
        ("payment", "-44.64", "0.00"),
        ("credit_note", "-12.00", "-12.00"),
        ("invoice", "10.00", "-2.00"),
        ("refund", "2.00", "0.00"),
    ]


def test_an_overpayment_is_credit_and_is_used_for_the_invoice_that_is_due_first(tenant: Tenant) -> None:
    first, second, third = (owed_invoice(tenant) for _ in range(3))
    assert pay(first, "25.00").problem == "overpaid"
    assert [state_of(each) for each in (first, second, third)] == ["paid", "settled", "issued"]
    assert posting.open_amount(third) == Decimal("5.00") and posting.credit_balance(tenant, "EUR") == 0


def test_a_payment_in_another_currency_is_credit_in_that_currency(tenant: Tenant) -> None:
    invoice = owed_invoice(tenant)
    assert pay(invoice, "10.00", currency="USD").problem == "other_currency"
    assert (posting.balance(tenant, "EUR"), posting.balance(tenant, "USD")) == (Decimal(10), Decimal(-10))
    refund(tenant, "10.00", currency="USD")
    assert posting.balance(tenant, "USD") == 0 and state_of(invoice) == "issued"


@pytest.mark.parametrize("how", ["credited in full", "paid and credited", "nothing to pay", "below zero"])
def test_an_invoice_of_which_nothing_is_open_is_settled_and_never_overdue(tenant: Tenant, how: str) -> None:
    invoice = owed_invoice(tenant, {"nothing to pay": "0.00", "below zero": "-5.89"}.get(how, "10.00"))
    if how == "paid and credited":
        pay(invoice, "4.00")
        credit(invoice, "6.00")
    elif how == "credited in full":
        credit(invoice, "10.00")
    assert state_of(invoice) == "settled"
    assert dunning.overdue_of(tenant, NOW + timedelta(days=4_000)) == []
    assert posting.credit_balance(tenant, "EUR") == Decimal("5.89" if how == "below zero" else 0)
    assert AuditEntry.objects.filter(tenant=tenant, action="invoice.settled").count() == 1


def test_credit_notes_in_parts_sum_to_the_invoice_in_net_and_in_tax(tenant: Tenant) -> None:
    invoice = owed_invoice(tenant, "0.20", 19)
    for _ in range(10):
        credit(invoice, "0.02")
    sums = invoice.credit_notes.aggregate(net=Sum("subtotal"), tax=Sum("tax"), total=Sum("total"))
    assert (-sums["net"], -sums["tax"], -sums["total"]) == (invoice.subtotal, invoice.tax, invoice.total)
    assert state_of(invoice) == "settled"
    with pytest.raises(Invalid):
        credit(invoice, "0.01")


def test_payments_and_credits_after_a_write_off_reverse_it_and_gain_no_credit(tenant: Tenant) -> None:
    first, second = owed_invoice(tenant), owed_invoice(tenant)
    for each in (first, second):
        close(each, InvoiceState.WRITTEN_OFF)
    credit(first, "10.00")
    pay(second, "12.00")
    assert posting.credit_balance(tenant, "EUR") == Decimal("2.00") and posting.balance(tenant, "EUR") == Decimal(
        "-2.00"
    )


def test_a_refund_is_of_the_credit_balance_once_and_by_an_operator(tenant: Tenant) -> None:
    first = owed_invoice(tenant)
    pay(first, "15.00")
    for amount in ("5.01", "0.00", "-1.00", "0.001", "NaN", "Infinity"):
        with pytest.raises(Invalid):
            refund(tenant, amount)
    with pytest.raises(Invalid):
        refund(tenant, "1.00", reference=" ")
    refund(tenant, "2.00")
    with pytest.raises(Conflict):
        refund(tenant, "2.00")
    with pytest.raises(PermissionDenied):
        ledger.refund(
            acting=member_actor(tenant.members.get()), tenant=tenant, currency="EUR", amount=CENT, reference="x",
            now=NOW,
        )  # fmt: skip
    assert posting.credit_balance(tenant, "EUR") == Decimal("3.00")
    assert AuditEntry.objects.filter(tenant=tenant, action="ledger.refunded").count() == 1


def test_the_database_refuses_to_rewrite_the_ledger(tenant: Tenant) -> None:
    owed_invoice(tenant)
    for wrong in (
        lambda: LedgerEntry.objects.update(amount=0),
        lambda: LedgerEntry.objects.all().delete(),
        lambda: connection.cursor().execute("UPDATE billing_ledgerentry SET balance = 0"),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            wrong()


AMOUNTS = st.decimals(min_value="0.01", max_value="400", places=2)
KINDS = ("invoice", "credit", "credit the rest", "pay", "pay again", "mark paid", "write off", "refund")
ACTS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        AMOUNTS,
        st.integers(0, 3),
    ),
    max_size=14,
)  # fmt: skip


def act(tenant: Tenant, invoices: list[Invoice], what: str, amount: Decimal, which: int) -> None:
    if what == "invoice":
        invoices.append(owed_invoice(tenant, str(amount - 20), 19))
        return
    if what == "refund":
        refund(tenant, amount, reference=f"sepa {next(SERIAL)}")
        return
    if not invoices:
        return
    invoice = invoices[which % len(invoices)]
    match what:
        case "credit":
            credit(invoice, amount)
        case "credit the rest":
            credit(invoice, issuing.amounts_to_credit(invoice).net)
        case "pay":
            pay(invoice, amount)
        case "pay again":
            pay(invoice, amount, payment_id=f"{tenant.pk} again {which}")
        case "mark paid":
            close(invoice)
        case "write off":
            close(invoice, InvoiceState.WRITTEN_OFF)


@settings(max_examples=examples(60), deadline=None)
@given(acts=ACTS)
def test_credit_notes_stay_within_invoices_and_the_ledger_sums_to_the_amount_owed(acts: list[Any]) -> None:
    tenant = make_member().tenant
    invoices: list[Invoice] = []
    for what, amount, which in acts:
        try:
            with transaction.atomic():
                act(tenant, invoices, what, amount, which)
        except DomainError:
            pass
        assert_ledger_is_right(tenant)


@settings(max_examples=examples(25), deadline=None)
@given(acts=ACTS)
def test_a_ledger_that_is_filled_from_the_documents_says_what_is_owed(acts: list[Any]) -> None:
    """Refunds and transfers leave no document: they are not among the events, or may be used for other invoices."""
    tenant = make_member().tenant
    invoices: list[Invoice] = []
    for what, amount, which in acts:
        try:
            with transaction.atomic():
                if what != "refund":
                    act(tenant, invoices, what, amount, which)
        except DomainError:
            pass
    forget_ledger(tenant)
    import_module("billing.migrations.0023_ledger_from_documents")._fill_tenant(apps, tenant.pk)
    running = Decimal(0)
    for entry in LedgerEntry.objects.filter(tenant=tenant).order_by("pk"):
        running += entry.amount
        assert entry.balance == running
    opened = {each.pk: posting.open_amount(each) for each in Invoice.objects.filter(tenant=tenant)}
    assert all(amount >= 0 for amount in opened.values())
    left = posting.credit_balance(tenant, "EUR")
    assert left >= 0 and running == sum(opened.values()) - left
    still_open = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED)
    assert {each.pk for each in still_open} == {pk for pk, amount in opened.items() if amount}
    assert not (left and still_open.exists())


def forget_ledger(tenant: Tenant) -> None:
    """Brings the database into the state before there was a ledger."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_ledgerentry DISABLE TRIGGER ledger_is_posted")
        cursor.execute("DELETE FROM billing_ledgerentry WHERE tenant_id = %s", [tenant.pk])
        cursor.execute("ALTER TABLE billing_ledgerentry ENABLE TRIGGER ledger_is_posted")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def at_once(*acts: Any) -> list[Any]:
    """Returns the results of all calls, each in a thread with its own connection; a domain error is a result."""

    def run(one: Any) -> Any:
        try:
            return one()
        except DomainError as refused:
            return refused
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


@pytest.mark.django_db(transaction=True)
def test_acts_at_once_credit_no_more_than_the_invoice_and_count_a_payment_and_a_refund_once() -> None:
    tenant = make_member().tenant
    invoice, other = owed_invoice(tenant, "10.00", 19), owed_invoice(tenant, "30.00")

    made = at_once(*[lambda: credit(invoice, "6.00")] * 4)
    assert sum(isinstance(each, Invoice) for each in made) == 1
    assert -sum(note.subtotal for note in invoice.credit_notes.all()) == Decimal("6.00")

    at_once(*[lambda: pay(other, "40.00", payment_id="pay_twice")] * 4, lambda: credit(other, "1.00"))
    assert Payment.objects.count() == 1
    # Of the 41.00 for an invoice over 30.00 the other invoice took what was open of it.
    assert {state_of(each) for each in (invoice, other)} == {"paid", "settled"}
    left = posting.credit_balance(tenant, "EUR")
    assert left == Decimal("41.00") - Decimal("30.00") - Decimal("4.76")

    at_once(*[lambda: refund(tenant, left)] * 4)
    at_once(*[lambda n=n: refund(tenant, CENT, reference=f"sepa {n}") for n in range(2, 5)])
    assert posting.balance(tenant, "EUR") == posting.credit_balance(tenant, "EUR") == 0
    assert_ledger_is_right(tenant)
