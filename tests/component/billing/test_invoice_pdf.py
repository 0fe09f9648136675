"""Invoices as PDF: every amount, both languages, any tenant's name, isolation by tenant, and bounded size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from django.core import mail
from django.test import override_settings
from django.utils import timezone
from pypdf import PdfReader

from billing import call_limits
from billing.invoices import issuing, mailing, pdf, printing
from billing.invoices.periods import month_before, month_of
from billing.models import BillingProfile, Invoice, InvoiceKind, InvoiceLine
from tenants.actors import system_actor
from tenants.models import Member, Tenant
from tests.testkit.api_cases import Api, assert_problem, make_member, pytest_generate_tests

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

MONTH = month_before(month_of(datetime.now(UTC)))


@pytest.fixture()
def owner() -> Member:
    return make_member()


def invoice_of(tenant: Tenant, lines: int = 3) -> Invoice:
    """Creates an issued invoice with lines of 1.10 each."""
    subtotal = Decimal("1.10") * lines
    made = Invoice.objects.create(
        tenant=tenant, kind=InvoiceKind.INVOICE, number=f"INV-{tenant.pk}", period_start=MONTH.start,
        period_end=MONTH.end, currency="EUR", subtotal=subtotal, tax_percent=Decimal("19.00"), tax=Decimal("5.55"),
        total=subtotal + Decimal("5.55"),
        seller={"name": "Seller & Sons", "address": "Dock 1\nHamburg", "tax_id": "DE1"},
        buyer={"name": tenant.name, "address": "北京市", "tax_id": "", "email": "", "tenant": tenant.slug},
        issued_at=MONTH.end, due_at=MONTH.end + timedelta(days=14), note="Reverse charge",
    )  # fmt: skip
    InvoiceLine.objects.bulk_create(
        InvoiceLine(
            invoice=made, position=number + 1, kind="usage", instance_id="ins-aaaaaaaa", plan="stream", meter="stored",
            start=MONTH.start, end=MONTH.end, quantity=Decimal("2.5"), unit="GB·h", unit_price=Decimal("0.44"),
            amount=Decimal("1.10"),
        )
        for number in range(lines)
    )  # fmt: skip
    return made


def pages(raw: bytes) -> list[str]:
    return [" ".join(page.extract_text().split()) for page in PdfReader(BytesIO(raw)).pages]


def test_it_says_each_amount_and_names_in_any_script_in_both_languages(owner: Member) -> None:
    owner.tenant.name = "河流 <b>Co</b> & Łódź"
    found = invoice_of(owner.tenant)

    (english,) = pages(printing.as_pdf(found, "en"))
    (chinese,) = pages(printing.as_pdf(found, "zh-hans"))

    for words in ("Invoice", "Subtotal", "Total", "Tax, 19.00 %", "Due"):
        assert words in english, english
    for words in ("账单", "小计", "合计", "买方"):
        assert words in chinese.replace(" ", ""), chinese
    for text in (english, chinese):
        assert text.count("€ 1.10") == 3 and "€ 3.30" in text and "€ 5.55" in text and "€ 8.85" in text
        assert "<b>Co</b> & Łódź" in text and "河流" in text and "北京市" in text and "Seller & Sons" in text
        assert "2.5 GB·h" in text and "Reverse charge" in text


def test_a_character_that_no_font_has_is_replaced_visibly_and_said(owner: Member) -> None:
    found = invoice_of(owner.tenant)
    (plain,) = pages(printing.as_pdf(found, "en"))
    assert "without a font" not in plain
    found.buyer = found.buyer | {"name": "Acme \u13e3\u13b3\u13a9 GmbH"}
    (english,), (chinese,) = pages(printing.as_pdf(found, "en")), pages(printing.as_pdf(found, "zh-hans"))
    assert "Acme \ufffd\ufffd\ufffd GmbH" in english
    assert "\ufffd stands for a character without a font." in english
    assert "没有可用字体的字符" in chinese.replace(" ", "")


def test_a_name_that_cannot_be_shaped_is_printed_all_the_same(owner: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text shaping fails for a line that begins with a combining mark."""
    found, plain = invoice_of(owner.tenant), pdf._build

    def fails_shaped(*of: Any) -> bytes:
        if pdf._shaping.get():
            raise IndexError
        return plain(*of)

    monkeypatch.setattr(pdf, "_build", fails_shaped)
    assert "€ 8.85" in pages(printing.as_pdf(found, "en"))[0]


def test_the_same_invoice_is_the_same_bytes(owner: Member) -> None:
    found = invoice_of(owner.tenant)
    assert printing.as_pdf(found, "en") == printing.as_pdf(found, "en")


def test_many_lines_go_over_many_pages_each_with_its_head_and_end_at_a_limit(
    owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "LINES_MAX", 60)
    found = pages(printing.as_pdf(invoice_of(owner.tenant, lines=61), "en"))
    assert len(found) > 1
    assert all("Description" in page and "INV-" in page for page in found)
    assert sum(page.count("€ 1.10") for page in found) == 60
    assert "1 more line is in the CSV file" in found[-1]


def test_the_api_answers_it_in_the_language_asked_for_as_a_file_with_its_number(owner: Member) -> None:
    found = invoice_of(owner.tenant)
    answer = Api.of(owner).get(f"/invoices/{found.pk}/pdf?language=zh-hans")
    assert answer.headers["Content-Type"] == "application/pdf"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{found.number}.pdf"'
    assert "小计" in pages(answer.content)[0].replace(" ", "")
    assert_problem(Api.of(owner).get(f"/invoices/{found.pk}/pdf?language=xx"), 400, "invalid_request")
    assert_problem(Api.of(make_member()).get(f"/invoices/{found.pk}/pdf"), 404, "not_found")


def test_prints_of_an_invoice_are_limited_per_minute_and_tenant(
    owner: Member, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "PDFS_PER_MINUTE_MAX", 2)
    found, other = invoice_of(owner.tenant), make_member()
    others = invoice_of(other.tenant)
    with override_settings(REDIS_URL=redis_url, API_RATE_LIMITS=True):
        answers = [Api.of(owner).get(f"/invoices/{found.pk}/pdf").status_code for _ in range(3)]
        answers.append(Api.of(other).get(f"/invoices/{others.pk}/pdf").status_code)
    assert answers == [200, 200, 429, 200]


def test_it_goes_with_the_mail_and_a_credit_note_says_what_it_corrects(owner: Member) -> None:
    BillingProfile.objects.create(tenant=owner.tenant, email="bills@acme.example")
    found = invoice_of(owner.tenant)
    found.buyer = found.buyer | {"email": "bills@acme.example"}
    assert mailing.send_issued(found) == 1
    ((name, content, media_type),) = mail.outbox[-1].attachments
    assert (name, media_type) == (f"{found.number}.pdf", "application/pdf") and "€ 8.85" in pages(content)[0]

    credit = issuing.credit(
        acting=system_actor("test"), invoice=found, amount=Decimal("1.00"), note="Apology", now=timezone.now()
    )
    (text,) = pages(printing.as_pdf(credit, "en"))
    assert "Credit note" in text and f"Corrects {found.number}" in text and "-€ 1.00" in text
