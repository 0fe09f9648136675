"""REST resources of the ledger: charges, credits, payments and refunds, and the balances."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.serializers import Money
from billing.ledger import selectors
from billing.models import LedgerEntry, LedgerKind
from billing.models.plans import CURRENCY_PATTERN
from tenants.api.base import ApiView, endpoint
from tenants.api.endpoint import PageQuery
from tenants.choices import Scope

SHOWN_KINDS = [choice for choice in LedgerKind.choices if choice[0] != LedgerKind.TRANSFER]


class LedgerQuery(PageQuery):
    currency = serializers.RegexField(
        CURRENCY_PATTERN, required=False, help_text="Three capitals; by default the currency of the tenant."
    )


class BalanceQuery(PageQuery):
    at = serializers.DateTimeField(required=False, help_text="The balance at this instant; by default now.")


class LedgerEntryOut(serializers.ModelSerializer[LedgerEntry]):
    """Entry of the ledger. A positive `amount` increases what the tenant owes; `balance` is the sum of all entries up
    to it.
    """

    kind = serializers.ChoiceField(choices=SHOWN_KINDS)
    invoice = serializers.CharField(
        source="invoice_id", allow_null=True, help_text="Invoice of the entry; null for the credit balance."
    )
    document = serializers.CharField(
        source="document_id", allow_null=True, help_text="The invoice or the credit note that was issued."
    )
    number = serializers.CharField(
        source="document.number", default=None, allow_null=True, help_text="The number of the document."
    )

    amount = Money()
    balance = Money()

    class Meta:
        model = LedgerEntry
        fields = (
            "posted_at",
            "kind",
            "currency",
            "amount",
            "balance",
            "invoice",
            "document",
            "number",
            "reference",
        )


class BalanceOut(serializers.Serializer):
    """Sums of one currency: `balance` is `open_amount` less `credit`."""

    currency = serializers.CharField()
    balance = Money(help_text="Amount that the tenant owes; negative if it is owed to the tenant.")
    open_amount = Money(help_text="Sum of the open amounts of all invoices.")
    credit = Money(help_text="Credit that pays the next invoices or is refunded by the operator.")


class LedgerCollection(ApiView):
    tag = "Billing"

    @endpoint("list_ledger_entries", Scope.BILLING_READ, query=LedgerQuery, page_item=LedgerEntryOut)
    def get(self, request: Request) -> Response:
        """List the entries of the ledger.

        Invoices, credit notes, payments, refunds and write-offs of one currency in posting order.
        """
        currency = self.query.get("currency", self.tenant.currency)
        return self.page(selectors.entries_of(self.tenant, currency), LedgerEntryOut, order=("id",))


class BalanceCollection(ApiView):
    tag = "Billing"

    @endpoint("list_balances", Scope.BILLING_READ, query=BalanceQuery, page_item=BalanceOut)
    def get(self, request: Request) -> Response:
        """List balances by currency, now or at an instant."""
        balances = selectors.balances(self.tenant, self.query.get("at"))
        return self.page_items(balances, BalanceOut, key=lambda balance: balance.currency)
