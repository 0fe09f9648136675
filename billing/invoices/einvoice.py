"""Structured form of an invoice or a credit note: EN 16931 in the syntax Cross Industry Invoice.

ZUGFeRD and Factur-X use this syntax (profile EN 16931). Pure. Amounts of a credit note are positive here, as the
standard requires; they are negative in the database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django.utils.translation import gettext_noop
from drafthorse.models.accounting import ApplicableTradeTax
from drafthorse.models.document import Document
from drafthorse.models.note import IncludedNote
from drafthorse.models.party import TaxRegistration, TradeParty
from drafthorse.models.payment import PaymentMeans, PaymentTerms
from drafthorse.models.tradelines import LineItem

from billing.invoices.notes import REVERSE_CHARGE_NOTE
from billing.models import Invoice, InvoiceKind, InvoiceLine
from billing.models.agreements import IBAN
from billing.rating.terms import TaxSum
from tenants.currencies import minor_digits
from tenants.errors import Conflict

GUIDELINE: Final = "urn:cen.eu:en16931:2017"
SCHEMA: Final = "FACTUR-X_EN16931"
# A line takes 0.4 ms, and 23 KB while the document is made.
LINES_MAX: Final = 1_000
DIGITS_MAX: Final = 2
ADDRESS_FIELDS: Final = ("line_one", "line_two", "line_three")
# Codes of UNTDID 1001, 2475 and 4461, of UN/ECE recommendations 20 and 5305, and of VATEX.
TYPE_CODES: Final = {InvoiceKind.INVOICE: "380", InvoiceKind.CREDIT_NOTE: "381"}
SEPA_CREDIT_TRANSFER, CREDIT_TRANSFER = "58", "30"
UNIT_CODES: Final = {"h": "HUR", "GB": "E34"}
UNIT_CODE_OF_OTHERS: Final = "C62"
VAT: Final = "VAT"
STANDARD_RATE, ZERO_RATE, REVERSE_CHARGE = "S", "Z", "AE"
REVERSE_CHARGE_REASON: Final = "VATEX-EU-AE"
VAT_ID: Final = re.compile(r"[A-Z]{2}[0-9A-Z+*]{2,13}")


def check(invoice: Invoice, line_count: int) -> None:
    """Raises `Conflict` if the standard cannot express the invoice, or the invoice lacks a mandatory field."""
    for party, missing in (
        (invoice.seller, gettext_noop("The seller had no country when this was issued; the operator sets it.")),
        (invoice.buyer, gettext_noop("Your billing details had no country when this was issued; set it for the next.")),
    ):
        if not party.get("country"):
            raise Conflict(missing, code="no_country")
    if not invoice.seller["tax_id"]:
        raise Conflict(
            gettext_noop("The seller had no tax id when this was issued; the operator sets it."), code="no_tax_id"
        )
    if _is_reverse_charge(invoice) and not invoice.buyer["tax_id"]:
        raise Conflict(
            gettext_noop("Your billing details had no tax id, which an invoice by reverse charge needs."),
            code="no_tax_id",
        )
    if minor_digits(invoice.currency) > DIGITS_MAX:
        raise Conflict(gettext_noop("EN 16931 has no amounts of three decimals."), code="currency")
    if line_count > LINES_MAX:
        raise Conflict(gettext_noop("It has too many lines for a file; the CSV has all of them."), code="too_long")


def as_xml(invoice: Invoice, lines: Sequence[InvoiceLine], names: dict[str, str]) -> bytes:
    """Returns the document for an invoice that passed `check`. `names` are names of instances by id."""
    sign = -1 if invoice.kind == InvoiceKind.CREDIT_NOTE else 1
    document = Document()
    document.context.guideline_parameter.id = GUIDELINE
    header = document.header
    header.id = invoice.number
    header.type_code = TYPE_CODES[InvoiceKind(invoice.kind)]
    header.issue_date_time = invoice.issued_at.date()
    if invoice.note:
        note = IncludedNote()
        note.content = _printable(invoice.note)
        header.notes.add(note)
    agreement = document.trade.agreement
    _fill_party(agreement.seller, invoice.seller)
    _fill_party(agreement.buyer, invoice.buyer)
    if invoice.buyer.get("purchase_order"):
        agreement.buyer_order.issuer_assigned_id = _printable(invoice.buyer["purchase_order"])
    for line in lines:
        document.trade.items.add(_item(invoice, line, names, sign))
    document.trade.delivery.event.occurrence = _last_day(invoice.period_end)
    _fill_settlement(document.trade.settlement, invoice, sign)
    return bytes(document.serialize(schema=SCHEMA))


def _fill_party(party: TradeParty, values: dict[str, str]) -> None:
    party.name = _printable(values["name"])
    address = [_printable(line) for line in values["address"].splitlines() if line.strip()]
    if len(address) > len(ADDRESS_FIELDS):
        last = len(ADDRESS_FIELDS) - 1
        address = [*address[:last], ", ".join(address[last:])]
    for field, line in zip(ADDRESS_FIELDS, address, strict=False):
        setattr(party.address, field, line)
    party.address.country_id = values["country"]
    tax_id = _printable(values["tax_id"]).replace(" ", "")
    if tax_id:
        registration = TaxRegistration()
        registration.id = ("VA" if VAT_ID.fullmatch(tax_id) else "FC", tax_id)
        party.tax_registrations.add(registration)


def _item(invoice: Invoice, line: InvoiceLine, names: dict[str, str], sign: int) -> LineItem:
    item = LineItem()
    item.document.line_id = str(line.position)
    item.product.name = _printable(_name_of(line, names))
    quantity, unit_price = (line.quantity, line.unit_price) if line.unit else (Decimal(1), line.amount)
    quantity *= sign
    if unit_price < 0:  # the standard has no negative prices
        quantity, unit_price = -quantity, -unit_price
    item.agreement.net.amount = _plain(unit_price)
    code = UNIT_CODES.get(line.unit, UNIT_CODE_OF_OTHERS)
    if line.unit and code == UNIT_CODE_OF_OTHERS:
        item.product.description = f"Quantity in {line.unit}"
    item.delivery.billed_quantity = (_plain(quantity), code)
    percent = invoice.tax_percent if line.tax_percent is None else line.tax_percent
    tax = item.settlement.trade_tax
    tax.type_code = VAT
    tax.category_code = _category(invoice, percent or Decimal(0))
    tax.rate_applicable_percent = percent or Decimal(0)
    item.settlement.period.start = line.start.date()
    item.settlement.period.end = _last_day(line.end)
    item.settlement.monetary_summation.total_amount = _amount(sign * line.amount)
    return item


def _name_of(line: InvoiceLine, names: dict[str, str]) -> str:
    match line.kind:
        case "usage":
            return f"{names.get(line.instance_id, line.instance_id)}: {line.plan}, {line.meter}"
        case "adjustment" if line.corrects is not None:
            return f"Late usage of {line.corrects.number} ({line.meter})"
        case "discount":
            return f"Discount {line.meter}"
        case "minimum":
            return "Up to the minimum per month"
        case _:
            return "Credit"


def _fill_settlement(settlement: Any, invoice: Invoice, sign: int) -> None:
    settlement.currency_code = invoice.currency
    settlement.payment_reference = invoice.number
    account = invoice.seller.get("bank_account", "").replace(" ", "").upper()
    if account:
        means = PaymentMeans()
        is_iban = IBAN.fullmatch(account) is not None
        means.type_code = SEPA_CREDIT_TRANSFER if is_iban else CREDIT_TRANSFER
        if is_iban:
            means.payee_account.iban = account
        else:
            means.payee_account.proprietary_id = account
        settlement.payment_means.add(means)
    for tax_sum in invoice.tax_sums():
        settlement.trade_tax.add(_tax(invoice, tax_sum, sign))
    settlement.period.start = invoice.period_start.date()
    settlement.period.end = _last_day(invoice.period_end)
    terms = PaymentTerms()
    terms.due = invoice.due_at.date()
    settlement.terms.add(terms)
    sums, currency = settlement.monetary_summation, invoice.currency
    sums.line_total = _amount(sign * invoice.subtotal)
    sums.tax_basis_total = (_amount(sign * invoice.subtotal), None)
    sums.charge_total = sums.allowance_total = _amount(Decimal(0))
    sums.tax_total = (_amount(sign * invoice.tax), currency)
    sums.grand_total = (_amount(sign * invoice.total), None)
    sums.prepaid_total = _amount(invoice.from_balance)
    sums.due_amount = _amount(sign * invoice.total - invoice.from_balance)
    if invoice.corrects is not None:
        settlement.invoice_referenced_document.issuer_assigned_id = invoice.corrects.number


def _tax(invoice: Invoice, tax_sum: TaxSum, sign: int) -> ApplicableTradeTax:
    tax = ApplicableTradeTax()
    tax.calculated_amount = _amount(sign * tax_sum.tax)
    tax.type_code = VAT
    tax.basis_amount = _amount(sign * tax_sum.base)
    category = _category(invoice, tax_sum.percent)
    tax.category_code = category
    if category == REVERSE_CHARGE:
        tax.exemption_reason = "Reverse charge"
        tax.exemption_reason_code = REVERSE_CHARGE_REASON
    tax.rate_applicable_percent = tax_sum.percent
    return tax


def _category(invoice: Invoice, percent: Decimal) -> str:
    if percent:
        return STANDARD_RATE
    return REVERSE_CHARGE if _is_reverse_charge(invoice) else ZERO_RATE


def _is_reverse_charge(invoice: Invoice) -> bool:
    return REVERSE_CHARGE_NOTE in (invoice.note, invoice.corrects.note if invoice.corrects is not None else "")


def _last_day(end: Any) -> Any:
    """Returns the last day of a period whose end is exclusive."""
    return (end - timedelta(microseconds=1)).date()


def _amount(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01")) + 0  # + 0 removes the sign of a negative zero


def _plain(number: Decimal) -> str:
    """Returns the number without exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _printable(text: str) -> str:
    """Returns the text without characters that XML 1.0 forbids."""
    return "".join(letter for letter in text if letter >= " " and letter not in "\ufffe\uffff")
