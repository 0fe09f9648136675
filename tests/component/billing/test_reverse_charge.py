"""The note on reverse charge, in the reader's language, on invoices and beside a credit note's own note."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone
from pypdf import PdfReader

from billing import services
from billing.invoices import issuing, printing
from billing.invoices.periods import month_of
from billing.models import BillingProfile, Invoice, TaxChange
from tenants.actors import system_actor
from tenants.models import Member
from tests.testkit.api_cases import make_member
from tests.testkit.billing import create_operations
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("invoices")
MARCH = month_of(datetime(2026, 3, 15, tzinfo=UTC))
NOW = MARCH.end + timedelta(days=1)
ENGLISH, CHINESE = "Reverse charge: the recipient owes the tax.", "反向征税"


@pytest.fixture()
def owner() -> Member:
    services.ensure_default_plans()
    owner = make_member()
    create_operations(make_instance(owner.tenant, name="orders"), MARCH.start)
    BillingProfile.objects.create(tenant=owner.tenant, reverse_charge=True)
    return owner


def text_of(invoice: Invoice, language: str) -> str:
    raw = printing.as_pdf(Invoice.objects.get(pk=invoice.pk), language)
    return " ".join(PdfReader(BytesIO(raw)).pages[0].extract_text().split())


def test_it_is_in_the_language_of_the_file_and_stands_on_credit_notes(owner: Member) -> None:
    invoice = issuing.issue(acting=SYSTEM, tenant=owner.tenant, period=MARCH, now=NOW)
    assert invoice is not None
    note = issuing.credit(acting=SYSTEM, invoice=invoice, amount=Decimal(1), note="Outage of 3 March", now=NOW)

    assert ENGLISH in text_of(invoice, "en") and ENGLISH not in text_of(invoice, "zh-hans")
    assert CHINESE in text_of(invoice, "zh-hans")
    assert "Outage of 3 March" in text_of(note, "en") and ENGLISH in text_of(note, "en")
    console = Client()
    console.force_login(owner.user)
    for each in (invoice, note):
        assert ENGLISH in console.get(f"/invoices/{each.pk}/").content.decode()


def test_a_document_that_is_taxed_throughout_does_not_say_that_the_recipient_owes_the_tax(owner: Member) -> None:
    """Its tax of before, on late usage for example."""
    TaxChange.objects.create(tenant=owner.tenant, effective_from=MARCH.start, percent=Decimal(19))
    TaxChange.objects.create(tenant=owner.tenant, effective_from=MARCH.end, percent=Decimal(0))
    invoice = issuing.issue(acting=SYSTEM, tenant=owner.tenant, period=MARCH, now=NOW)
    april = issuing.issue(acting=SYSTEM, tenant=owner.tenant, period=month_of(NOW), now=NOW + timedelta(days=31))
    assert invoice is not None and april is not None
    assert (invoice.tax > 0, invoice.note) == (True, "")
    assert (april.tax, april.note) == (0, ENGLISH)


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ([(-30, 19)], True),
        ([(-30, 19), (-1, 0)], False),
        ([(-30, 0), (5, 19)], True),
        ([(5, 0)], False),
        ([], False),
    ],
)
def test_it_is_not_set_while_a_change_of_tax_taxes_hours_to_come(
    owner: Member, changes: list[tuple[int, int]], is_refused: bool
) -> None:
    for days, percent in changes:
        TaxChange.objects.create(
            tenant=owner.tenant, effective_from=timezone.now() + timedelta(days=days), percent=Decimal(percent)
        )
    profile = BillingProfile.objects.get(tenant=owner.tenant)
    if is_refused:
        with pytest.raises(ValidationError, match="taxed by a change"):
            profile.full_clean()
    else:
        profile.full_clean()
