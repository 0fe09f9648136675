"""Notes below an invoice or a credit note, in the reader's language."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Invoice

# Stored in English, and translated when a page or a file shows it.
REVERSE_CHARGE_NOTE = gettext_noop("Reverse charge: the recipient owes the tax.")


def notes_of(invoice: Invoice) -> list[str]:
    """Returns the notes of a document. A credit note repeats the reverse charge note of the invoice it corrects."""
    notes = [_(REVERSE_CHARGE_NOTE) if invoice.note == REVERSE_CHARGE_NOTE else invoice.note] if invoice.note else []
    if invoice.corrects is not None and invoice.corrects.note == REVERSE_CHARGE_NOTE:
        notes.append(_(REVERSE_CHARGE_NOTE))
    return notes
