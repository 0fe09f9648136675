"""Fills the ledger from invoices, credit notes and payments, and has the database refuse to rewrite it."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

from django.db import migrations
from django.utils import timezone

ZERO = Decimal(0)
BATCH = 500

FORWARD = """
CREATE FUNCTION billing_ledger_is_posted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a ledger entry stays as it is' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER ledger_is_posted BEFORE UPDATE OR DELETE ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION billing_ledger_is_posted();
"""
BACKWARD = """
DROP TRIGGER ledger_is_posted ON billing_ledgerentry;
DROP FUNCTION billing_ledger_is_posted();
"""


def fill(apps, schema_editor):
    """Posts what happened to the invoices of each tenant, in its order. Credit that is left is then used for open
    invoices, and those of which nothing is open are settled.
    """
    Invoice = apps.get_model("billing", "Invoice")
    tenants = Invoice.objects.order_by("tenant_id").values_list("tenant_id", flat=True).distinct()
    for tenant_id in tenants.iterator(chunk_size=BATCH):
        _fill_tenant(apps, tenant_id)


def _fill_tenant(apps, tenant_id):
    Invoice, Payment = apps.get_model("billing", "Invoice"), apps.get_model("billing", "Payment")
    LedgerEntry = apps.get_model("billing", "LedgerEntry")
    now = timezone.now()
    documents = list(Invoice.objects.filter(tenant_id=tenant_id).defer("inputs").order_by("issued_at", "pk"))
    by_id = {each.pk: each for each in documents}
    payments = list(Payment.objects.filter(invoice_id__in=by_id).order_by("received_at", "pk"))
    events = [(each.issued_at, 0, "document", each) for each in documents]
    events += [(each.received_at, 1, "payment", each) for each in payments]
    # A payment closes its invoice at the instant at which it is received.
    events += [(each.closed_at, 2, "closing", each) for each in documents if each.closed_at is not None]
    events += [(each.handled_at, 3, "handled", each) for each in payments if each.handled_at is not None]
    balances, opened, written_off = defaultdict(Decimal), defaultdict(Decimal), defaultdict(Decimal)
    credits, excess = defaultdict(Decimal), {}
    entries = []

    def post(currency, kind, amount, at, *, invoice=None, **more):
        balances[currency] += amount
        if invoice is None:
            credits[currency] -= amount
        else:
            opened[invoice.pk] += amount
        entries.append(
            LedgerEntry(
                tenant_id=tenant_id, currency=currency, kind=kind, amount=amount, balance=balances[currency],
                invoice=invoice, posted_at=at, **more,
            )
        )

    def transfer(invoice, amount, at):
        post(invoice.currency, "transfer", amount, at, reference=invoice.number)
        post(invoice.currency, "transfer", -amount, at, invoice=invoice, reference=invoice.number)

    def reverse_write_off(invoice, amount, at):
        taken = min(written_off[invoice.pk], amount)
        if taken > ZERO:
            written_off[invoice.pk] -= taken
            post(invoice.currency, "write_off", taken, at, invoice=invoice, reference=invoice.number)

    for at, _, what, row in sorted(events, key=lambda each: (each[0], each[1], str(each[3].pk).rjust(20))):
        if what == "document":
            corrected = row if row.kind == "invoice" else by_id[row.corrects_id]
            if row.kind == "credit_note":
                reverse_write_off(corrected, -row.total, at)
            post(row.currency, row.kind, row.total, at, invoice=corrected, document=row)
        elif what == "payment":
            invoice = by_id[row.invoice_id]
            paid = invoice if row.currency == invoice.currency else None
            before = max(ZERO, opened[invoice.pk]) if paid else ZERO
            if paid:
                reverse_write_off(invoice, row.amount, at)
            reference = f"payment {row.provider_id}"[:120]
            post(row.currency, "payment", -row.amount, at, invoice=paid, payment=row, reference=reference)
            excess[row.pk] = max(ZERO, row.amount - before)
            if paid and opened[invoice.pk] < ZERO:
                transfer(invoice, opened[invoice.pk], at)
        elif what == "closing":
            if opened[row.pk] > ZERO:
                kind = "payment" if row.state == "paid" else "write_off"
                if kind == "write_off":
                    written_off[row.pk] += opened[row.pk]
                post(row.currency, kind, -opened[row.pk], at, invoice=row, reference=row.reference)
        else:
            # An operator looked after it: what it was too much was paid back.
            amount = min(excess.get(row.pk, ZERO), credits[row.currency])
            if amount > ZERO:
                reference = f"payment {row.provider_id}"[:120]
                post(row.currency, "refund", amount, at, reference=reference)
    for each in documents:
        if opened[each.pk] < ZERO:
            transfer(each, opened[each.pk], now)
    unpaid = [each for each in documents if each.kind == "invoice" and each.state == "issued"]
    for each in sorted(unpaid, key=lambda invoice: (invoice.due_at, invoice.pk)):
        used = min(credits[each.currency], opened[each.pk])
        if used > ZERO:
            transfer(each, used, now)
        if opened[each.pk] == ZERO:
            Invoice.objects.filter(pk=each.pk).update(state="settled", closed_at=now)
    LedgerEntry.objects.bulk_create(entries, batch_size=BATCH)


class Migration(migrations.Migration):
    dependencies = [("billing", "0022_ledger")]
    operations = [
        # The trigger first: PostgreSQL makes none on a table with rows whose foreign keys are still to be checked.
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
