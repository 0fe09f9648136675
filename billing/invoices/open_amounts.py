"""Reads: what is still to be paid of an invoice."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypedDict

from django.db.models import Case, DecimalField, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from billing.models import Invoice, InvoiceKind, InvoiceState, Payment
from billing.models.payments import PaymentProblem

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

MONEY: DecimalField = DecimalField(max_digits=14, decimal_places=2)
NOTHING = Value(Decimal(0), output_field=MONEY)
# A payment with one of these counts for its invoice.
COUNTS = Q(problem__in=("", PaymentProblem.OVERPAID))


class OpenAmount(TypedDict):
    """What is added to an invoice."""

    open_amount: Decimal


def with_open_amount(invoices: QuerySet[Invoice]) -> QuerySet[WithAnnotations[Invoice, OpenAmount]]:
    """`open_amount`: the total less credit notes and payments. Nothing where it is closed, or is a credit note."""
    credited = Invoice.objects.filter(corrects=OuterRef("pk")).order_by().values("corrects").annotate(sum=Sum("total"))
    paid = (
        Payment.objects.filter(COUNTS, invoice=OuterRef("pk")).order_by().values("invoice").annotate(sum=Sum("amount"))
    )
    left = (
        F("total")
        + Coalesce(Subquery(credited.values("sum")), NOTHING)
        - Coalesce(Subquery(paid.values("sum")), NOTHING)
    )
    is_open = Q(state=InvoiceState.ISSUED, kind=InvoiceKind.INVOICE)
    return invoices.annotate(open_amount=Case(When(is_open, then=left), default=NOTHING, output_field=MONEY))
