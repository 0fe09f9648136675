"""Command `manage.py invoices`: closes a month, closes, corrects and recomputes invoices."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from billing.invoices import closing, issuing
from billing.invoices.periods import month_of
from billing.invoices.recompute import recompute
from billing.ledger import services as ledger
from billing.models import Invoice, InvoiceState
from tenants.actors import system_actor
from tenants.errors import DomainError
from tenants.models import Tenant

STATES = {"paid": InvoiceState.PAID, "written-off": InvoiceState.WRITTEN_OFF}
ACTOR = system_actor("manage.py invoices")


class Command(BaseCommand):
    help = "Issues the invoices of a month, closes and corrects them, and works them out again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        subcommands = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        issue = subcommands.add_parser("issue", help="issue what is not issued yet of a month that is over")
        issue.add_argument("--month", metavar="YYYY-MM", help="default: the month before this one")
        close = subcommands.add_parser("close", help="say that an invoice is paid, or written off")
        close.add_argument("number")
        close.add_argument("--as", dest="state", choices=sorted(STATES), default="paid")
        close.add_argument("--reference", required=True, help="by which payment, or why not")
        credit = subcommands.add_parser("credit", help="issue a credit note")
        credit.add_argument("number", help="of the invoice it corrects")
        credit.add_argument("--amount", required=True, help="before tax")
        credit.add_argument("--note", required=True, help="what it is for; stands on the credit note")
        refund = subcommands.add_parser("refund", help="record that credit of a tenant was paid back")
        refund.add_argument("tenant", help="its short name")
        refund.add_argument("--amount", required=True)
        refund.add_argument("--currency", help="default: the tenant's")
        refund.add_argument("--reference", required=True, help="by which transfer; counts once for a tenant")
        recompute_parser = subcommands.add_parser(
            "recompute", help="work an invoice out again; ends with 1 where it differs"
        )
        recompute_parser.add_argument("number")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['act']}")(options)
        except DomainError as error:
            raise CommandError(str(error.detail or error.title)) from None

    def _issue(self, options: dict[str, Any]) -> None:
        period = None
        if options["month"]:
            try:
                period = month_of(datetime.strptime(options["month"], "%Y-%m").replace(tzinfo=UTC))
            except ValueError:
                raise CommandError("A month is written 2026-11.") from None
        result = closing.close_month(timezone.now().astimezone(UTC), acting=ACTOR, period=period)
        self.stdout.write(
            f"{result.period.start:%Y-%m}: {result.issued} issued, {result.nothing_to_charge} with nothing to charge, "
            f"{len(result.waiting)} waiting"
        )
        for slug, reason in result.waiting.items():
            self.stdout.write(f"  {slug}: {reason}")

    def _close(self, options: dict[str, Any]) -> None:
        invoice = issuing.close(
            acting=ACTOR, invoice=_invoice(options["number"]), state=STATES[options["state"]],
            reference=options["reference"], now=timezone.now(),
        )  # fmt: skip
        self.stdout.write(f"{invoice.number}: {invoice.state}")

    def _credit(self, options: dict[str, Any]) -> None:
        credit_note = issuing.credit(
            acting=ACTOR, invoice=_invoice(options["number"]), amount=_amount(options["amount"]),
            note=options["note"], now=timezone.now(),
        )  # fmt: skip
        self.stdout.write(f"{credit_note.number}: {credit_note.total} {credit_note.currency}")

    def _refund(self, options: dict[str, Any]) -> None:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError(f"There is no tenant {options['tenant']}.")
        entry = ledger.refund(
            acting=ACTOR, tenant=tenant, currency=options["currency"] or tenant.currency,
            amount=_amount(options["amount"]), reference=options["reference"], now=timezone.now(),
        )  # fmt: skip
        self.stdout.write(f"{tenant.slug}: {entry.amount} {entry.currency} refunded, balance {entry.balance}")

    def _recompute(self, options: dict[str, Any]) -> None:
        invoice = _invoice(options["number"])
        result = recompute(invoice)
        if not invoice.inputs:
            self.stdout.write(f"{result.lines} lines, {result.subtotal}: no inputs, nothing to work out again")
            return
        for difference in result.differences:
            self.stdout.write(
                f"{difference.source}: {difference.instance_id} {difference.meter} invoiced {difference.invoiced}, "
                f"due {difference.recomputed}"
            )
        if not result.is_equal:
            raise CommandError(f"{len(result.differences)} differences")
        self.stdout.write(f"{result.lines} lines, {result.subtotal}: equal to the cent")


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise CommandError(f"{text!r} is not an amount.")
    return amount


def _invoice(number: str) -> Invoice:
    invoice = Invoice.objects.filter(number=number).first()
    if invoice is None:
        raise CommandError(f"There is no invoice {number}.")
    return invoice
