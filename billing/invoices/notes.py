"""Sentences that stand below an invoice or a credit note, in the reader's language."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Invoice

# Stored as it is here, and shown in the language of the page or the file.
REVERSE_CHARGE_NOTE = gettext_noop("Reverse charge: the recipient owes the tax.")


def notes_of(invoice: Invoice) -> list[str]:
    """Sentences below a document: its own, as it was written. A credit note of an invoice by reverse charge says that,
    too.
    """
    notes = [_(REVERSE_CHARGE_NOTE) if invoice.note == REVERSE_CHARGE_NOTE else invoice.note] if invoice.note else []
    if invoice.corrects is not None and invoice.corrects.note == REVERSE_CHARGE_NOTE:
        notes.append(_(REVERSE_CHARGE_NOTE))
    return notes
