"""REST resources of operators about ledgers of tenants: `/operator/tenants/{id}/ledger`, `…/refunds`,
`/operator/invoices/{id}/close`, `…/credit`.
"""

from __future__ import annotations

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing import access
from billing.api.invoice_serializers import InvoiceOut
from billing.api.ledger import BalanceOut, BalanceQuery, LedgerEntryOut, LedgerQuery
from billing.api.operator_base import OperatorMoneyView, tenant_or_404
from billing.invoices import issuing
from billing.ledger import selectors, services
from billing.models import Invoice, InvoiceState
from billing.models.invoices import NOTE_CHARS_MAX, REFERENCE_CHARS_MAX
from billing.models.plans import CURRENCY_PATTERN
from tenants.api.base import endpoint
from tenants.api.strict import Choice, StrictSerializer, Text
from tenants.choices import Scope
from tenants.currencies import DIGITS_STORED_MAX

AMOUNT_DIGITS_MAX = 15


class Amount(serializers.DecimalField):
    """Amount as a string; the number of decimals is limited by its currency."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(max_digits=AMOUNT_DIGITS_MAX, decimal_places=DIGITS_STORED_MAX, **kwargs)  # type: ignore[arg-type]


class RefundIn(StrictSerializer):
    """Credit that was paid back outside of Penstock; this call transfers nothing."""

    amount = Amount()
    currency = serializers.RegexField(
        CURRENCY_PATTERN, required=False, help_text="Three capitals; by default the currency of the tenant."
    )
    reference = Text(
        min_length=1, max_length=REFERENCE_CHARS_MAX, help_text="By which transfer. Each counts once for a tenant."
    )


class InvoiceCloseIn(StrictSerializer):
    """Final state of an open invoice."""

    state = Choice(choices=(InvoiceState.PAID.value, InvoiceState.WRITTEN_OFF.value))
    reference = Text(min_length=1, max_length=REFERENCE_CHARS_MAX, help_text="By which payment, or why not.")


class InvoiceCreditIn(StrictSerializer):
    """Amount and reason of a credit note."""

    amount = Amount(help_text="Before tax.")
    note = Text(min_length=1, max_length=NOTE_CHARS_MAX, help_text="What it is for; stands on the credit note.")


class _LedgerView(OperatorMoneyView):
    may_read = "billing.view_invoice"
    may_write = "billing.change_invoice"


class OperatorLedgerCollection(_LedgerView):
    @endpoint(
        "list_operator_ledger_entries", Scope.OPERATOR, query=LedgerQuery, page_item=LedgerEntryOut, errors=(404,)
    )
    def get(self, request: Request, tenant_id: str) -> Response:
        """List the entries of a tenant's ledger.

        Invoices, credit notes, payments, refunds and write-offs of one currency in posting order.
        """
        tenant = tenant_or_404(tenant_id)
        currency = self.query.get("currency", tenant.currency)
        return self.page(selectors.entries_of(tenant, currency), LedgerEntryOut, order=("id",))


class OperatorBalanceCollection(_LedgerView):
    @endpoint("list_operator_balances", Scope.OPERATOR, query=BalanceQuery, page_item=BalanceOut, errors=(404,))
    def get(self, request: Request, tenant_id: str) -> Response:
        """List a tenant's balances by currency, now or at an instant."""
        balances = selectors.balances(tenant_or_404(tenant_id), self.query.get("at"))
        return self.page_items(balances, BalanceOut, key=lambda balance: balance.currency)


class RefundCollection(_LedgerView):
    @endpoint("record_refund", Scope.OPERATOR, body=RefundIn, returns=LedgerEntryOut, status=201, errors=(404, 409))
    def post(self, request: Request, tenant_id: str) -> Response:
        """Record that credit of a tenant was paid back."""
        tenant = tenant_or_404(tenant_id)
        entry = services.refund(
            acting=self.actor, tenant=tenant, currency=self.body.get("currency", tenant.currency),
            amount=self.body["amount"], reference=self.body["reference"], now=timezone.now(),
        )  # fmt: skip
        return self.one(entry, LedgerEntryOut, status=201)


class OperatorInvoiceClosing(_LedgerView):
    @endpoint("close_invoice", Scope.OPERATOR, body=InvoiceCloseIn, returns=InvoiceOut, errors=(404, 409))
    def post(self, request: Request, invoice_id: str) -> Response:
        """Close an open invoice as paid or written off. Its open amount is posted to the ledger."""
        invoice = access.any_invoice(invoice_id)
        issuing.close(
            acting=self.actor, invoice=invoice, state=InvoiceState(self.body["state"]),
            reference=self.body["reference"], now=timezone.now(),
        )  # fmt: skip
        return self._shown(invoice)

    def _shown(self, invoice: Invoice) -> Response:
        return self.one(access.any_invoice(invoice.pk), InvoiceOut)


class OperatorInvoiceCredit(_LedgerView):
    @endpoint("credit_invoice", Scope.OPERATOR, body=InvoiceCreditIn, returns=InvoiceOut, status=201, errors=(404, 409))
    def post(self, request: Request, invoice_id: str) -> Response:
        """Issue a credit note of an invoice.

        It has the tax rates of the invoice. The credit notes of an invoice sum to at most its amount; the part that
        exceeds its open amount becomes credit of the tenant.
        """
        credit_note = issuing.credit(
            acting=self.actor, invoice=access.any_invoice(invoice_id), amount=self.body["amount"],
            note=self.body["note"], now=timezone.now(),
        )  # fmt: skip
        return self.one(access.any_invoice(credit_note.pk), InvoiceOut, status=201)
