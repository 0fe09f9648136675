"""Reads: open amounts of invoices."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypedDict

from django.db.models import OuterRef, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from billing.models import Invoice, LedgerEntry
from billing.models.money import MoneyField

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

MONEY = MoneyField()
ZERO_SUM = Value(Decimal(0), output_field=MONEY)


class OpenAmount(TypedDict):
    """Annotation of an invoice."""

    open_amount: Decimal


def with_open_amount(invoices: QuerySet[Invoice]) -> QuerySet[WithAnnotations[Invoice, OpenAmount]]:
    """Annotates invoices with their `open_amount`, the sum of their ledger entries.

    It is zero for closed invoices and for credit notes.
    """
    entries = LedgerEntry.objects.filter(invoice=OuterRef("pk")).order_by().values("invoice")
    return invoices.annotate(
        open_amount=Coalesce(Subquery(entries.annotate(sum=Sum("amount")).values("sum")), ZERO_SUM, output_field=MONEY)
    )
