"""PDF of an invoice or a credit note, in English or Chinese. Pure except for translations and a warning in the log.

Letters that Helvetica lacks are set in Noto Sans, of which the used glyphs are embedded (`billing.invoices.faces`). The
same invoice always gives the same text and look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from io import BytesIO
from typing import Any, Final
from xml.sax.saxutils import escape

import structlog
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from reportlab.lib import colors
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from billing.invoices import faces, fonts
from billing.invoices.notes import notes_of
from billing.invoices.printing import InvoiceDocument
from billing.models import Invoice, InvoiceLine
from billing.models.agreements import ADDRESS_LINES_MAX
from tenants.formatting import money, quantity, unit_price
from tenants.templatetags.console import day_utc, minute_utc

MARGIN: Final = 18 * mm
FRAME_PADDING: Final = 6
WIDTHS: Final = tuple(width * mm for width in (10, 66, 40, 34, 24))
# Width of the narrowest column that contains a name.
NAME_WIDTH: Final = 60 * mm
RULE: Final = colors.HexColor("#c9cdd2")
MUTED: Final = colors.HexColor("#5b6470")

BODY: Final = ParagraphStyle("body", fontName="Helvetica", fontSize=9, leading=12, wordWrap="CJK")
SMALL: Final = ParagraphStyle("small", parent=BODY, fontSize=7.5, leading=10, textColor=MUTED)
SMALL_RIGHT: Final = ParagraphStyle("small right", parent=SMALL, alignment=TA_RIGHT)
RIGHT: Final = ParagraphStyle("right", parent=BODY, alignment=TA_RIGHT)
# Style for scripts that need shaping; line breaks are computed before.
SHAPED: Final = ParagraphStyle("shaped", fontName=faces.LATIN.name, shaping=1)
TITLE: Final = ParagraphStyle("title", parent=BODY, fontName="Helvetica-Bold", fontSize=16, leading=22)

_shaping: ContextVar[int] = ContextVar("shaping", default=1)
log = structlog.get_logger(__name__)


def render(document: InvoiceDocument, language: str) -> bytes:
    """Returns the PDF in `language`, one of the console's languages."""
    try:
        return _build(document, language)
    except IndexError:
        # reportlab raises it for a line that begins with a combining mark without a letter. An unshaped invoice is
        # better than none.
        log.warning("invoice_not_shaped", invoice=document.invoice.pk)
        token = _shaping.set(0)
        try:
            return _build(document, language)
        finally:
            _shaping.reset(token)


def _build(document: InvoiceDocument, language: str) -> bytes:
    invoice, buffer = document.invoice, BytesIO()
    with translation.override(language):
        title = f"{invoice.get_kind_display()} {invoice.number}"
        template = SimpleDocTemplate(
            buffer, pagesize=A4, topMargin=MARGIN, bottomMargin=MARGIN, leftMargin=MARGIN - FRAME_PADDING,
            rightMargin=MARGIN - FRAME_PADDING,
            title=title, author=invoice.seller["name"], invariant=1,
        )  # fmt: skip
        footer = partial(_draw_footer, title=title)
        template.build(_story(document, title), onFirstPage=footer, onLaterPages=footer)
    return buffer.getvalue()


def _story(document: InvoiceDocument, title: str) -> list[Flowable]:
    invoice = document.invoice
    story: list[Flowable] = [
        _text(title, TITLE), Spacer(0, 4 * mm), _parties(invoice), Spacer(0, 5 * mm), _facts(invoice),
        Spacer(0, 5 * mm), _invoice_lines(document), Spacer(0, 4 * mm), _sums(invoice),
    ]  # fmt: skip
    omitted = document.line_count - len(document.lines)
    if omitted > 0:
        omitted_notice = ngettext(
            "%(n)d more line is in the CSV file of this invoice.",
            "%(n)d more lines are in the CSV file of this invoice.",
            omitted,
        )
        story.insert(-2, _text(omitted_notice % {"n": omitted}, SMALL))
    if invoice.total > invoice.from_balance and invoice.seller.get("bank_account"):
        story += [Spacer(0, 5 * mm), _payment(invoice)]
    for note in notes_of(invoice):
        story += [Spacer(0, 4 * mm), _text(note)]
    if any(fonts.has_missing_glyphs(text) for text in _user_texts(document)):
        notice = _("%(sign)s stands for a character without a font. The page of this invoice in the console shows it.")
        story += [Spacer(0, 4 * mm), _text(notice % {"sign": fonts.REPLACEMENT}, SMALL)]
    return story


def _user_texts(document: InvoiceDocument) -> Iterator[str]:
    """Yields the texts of the document that people entered."""
    invoice = document.invoice
    yield from (*invoice.seller.values(), *invoice.buyer.values(), *document.names.values(), *notes_of(invoice))
    yield from (line.meter for line in document.lines if line.kind == "discount")


def _parties(invoice: Invoice) -> Table:
    def party(label: str, party_details: dict[str, str]) -> list[Flowable]:
        lines = [line for line in party_details["address"].splitlines() if line.strip()]
        # A party is one table cell, which cannot exceed a page.
        if len(lines) > ADDRESS_LINES_MAX:
            lines = [*lines[: ADDRESS_LINES_MAX - 1], ", ".join(lines[ADDRESS_LINES_MAX - 1 :])]
        rest = [*lines, party_details["tax_id"]]
        return [_text(label, SMALL), _text(party_details["name"]), *(_text(text) for text in rest if text.strip())]

    return _table([[party(_("Seller"), invoice.seller), party(_("Buyer"), invoice.buyer)]], (87 * mm, 87 * mm))


def _payment(invoice: Invoice) -> Table:
    """Returns the bank details and the payment reference."""
    seller = invoice.seller
    facts = [
        (_("Pay to"), seller["name"]),
        (_("Bank"), " ".join(part for part in (seller.get("bank_name"), seller.get("bank_code")) if part) or "-"),
        (_("Account"), seller["bank_account"]),
        (_("Payment reference"), invoice.number),
    ]
    cells = [[_text(label, SMALL), _text(value)] for label, value in facts]
    return _table([cells], (44 * mm, 42 * mm, 50 * mm, 38 * mm))


def _facts(invoice: Invoice) -> Table:
    facts = [
        (_("Period, UTC"), f"{day_utc(invoice.period_start)} – {day_utc(invoice.period_end)}"),
        (_("Issued"), day_utc(invoice.issued_at)),
    ]
    if invoice.corrects is not None:
        facts.append((_("Corrects"), invoice.corrects.number))
    else:
        facts.append((_("Due"), day_utc(invoice.due_at)))
    if invoice.buyer.get("purchase_order"):
        facts.append((_("Purchase order"), invoice.buyer["purchase_order"]))
    cells = [[_text(label, SMALL), _text(value)] for label, value in facts]
    return _table([cells], (174 * mm / len(facts),) * len(facts))


def _invoice_lines(document: InvoiceDocument) -> Table:
    head = [
        _text(_("Line"), SMALL), _text(_("Description"), SMALL), _text(_("Period, UTC"), SMALL),
        _text(_("Quantity and price"), SMALL), _text(_("Amount"), SMALL_RIGHT),
    ]  # fmt: skip
    rows = [head, *(_row(line, document) for line in document.lines)]
    table = Table(rows, colWidths=WIDTHS, repeatRows=1)
    table.setStyle(
        TableStyle(
            [
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LINEBELOW", (0, 0), (-1, -1), 0.4, RULE),
                ("LEFTPADDING", (0, 0), (0, -1), 0),
                ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
            ]
        )
    )
    return table


def _row(line: InvoiceLine, document: InvoiceDocument) -> list[Any]:
    currency = document.invoice.currency
    description = [_text(_name_of(line, document.names))]
    if line.kind == "usage":
        description.append(_text(f"{line.plan} · {line.meter}", SMALL))
        if line.hours is not None:
            values = {"hours": line.hours, "of": document.period_hours}
            description.append(_text(_("%(hours)s of %(of)s hours") % values, SMALL))
    priced: list[Flowable] = []
    if line.unit:
        priced = [
            _text(f"{quantity(line.quantity)} {line.unit}"),
            _text(f"× {unit_price(line.unit_price, currency)}", SMALL),
        ]
    if document.invoice.tax_percent is None and line.tax_percent is not None:
        description.append(_text(_("Tax, %(percent)s %%") % {"percent": line.tax_percent}, SMALL))
    return [
        _text(str(line.position)),
        description,
        [_text(minute_utc(line.start), SMALL), _text(minute_utc(line.end), SMALL)],
        priced,
        _text(money(line.amount, currency), RIGHT),
    ]


def _name_of(line: InvoiceLine, names: dict[str, str]) -> str:
    match line.kind:
        case "usage":
            return names.get(line.instance_id, line.instance_id)
        case "adjustment" if line.corrects is not None:
            return _("Late usage of %(number)s (%(meter)s)") % {"number": line.corrects.number, "meter": line.meter}
        case "discount":
            return f"{_('Discount')} {line.meter}"
        case "minimum":
            return _("Up to the minimum per month")
        case _:
            return _("Credit")


def _sums(invoice: Invoice) -> Table:
    taxes = invoice.tax_sums()
    rows = [(_("Subtotal"), invoice.subtotal)]
    for tax_sum in taxes:
        values = {"percent": tax_sum.percent, "base": money(tax_sum.base, invoice.currency)}
        text = _("Tax, %(percent)s %% of %(base)s") if len(taxes) > 1 else _("Tax, %(percent)s %%")
        rows.append((text % values, tax_sum.tax))
    rows.append((_("Total"), invoice.total))
    if invoice.from_balance:
        rows.append((_("From the credit balance"), -invoice.from_balance))
        rows.append((_("To pay"), invoice.total - invoice.from_balance))
    elif invoice.total < 0 and invoice.corrects is None:
        rows.append((_("Added to the credit balance"), -invoice.total))
    cells = [["", _text(label), _text(money(amount, invoice.currency), RIGHT)] for label, amount in rows]
    table = _table(cells, (104 * mm, 38 * mm, 32 * mm))
    table.setStyle(TableStyle([("LINEABOVE", (1, 1 + len(taxes)), (-1, 1 + len(taxes)), 0.8, colors.black)]))
    return table


def _table(cells: list[Any], widths: Sequence[float]) -> Table:
    table = Table(cells, colWidths=widths)
    table.setStyle(
        TableStyle(
            [
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LEFTPADDING", (0, 0), (0, -1), 0),
                ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
            ]
        )
    )
    return table


def _text(text: str, style: ParagraphStyle = BODY, width: float = NAME_WIDTH) -> Paragraph:
    """Returns a paragraph with the text escaped, and each letter in a font that has it.

    `width` is the line width for scripts that need shaping.
    """
    text = fonts.cleaned(text.replace("−", "-"))
    if fonts.is_plain(text):
        return Paragraph("".join(_as_markup(run) for run in fonts.plain_runs(text)), style)

    def width_of(run: fonts.Run) -> float:
        return float(pdfmetrics.stringWidth(run.text, run.font, style.fontSize))

    faces.load(faces.LATIN)
    # Runs in different fonts are separated by a space even within a word: reportlab shapes text without spaces in the
    # font of its first run.
    lines = (
        " ".join(_as_markup(run) for word in line for run in word) for line in fonts.text_lines(text, width, width_of)
    )
    return Paragraph(
        "<br/>".join(lines), SHAPED.clone("shaped copy", shaping=_shaping.get(), **_font_attributes(style))
    )


def _font_attributes(style: ParagraphStyle) -> dict[str, Any]:
    return {name: getattr(style, name) for name in ("fontSize", "leading", "textColor", "alignment")}


def _as_markup(run: fonts.Run) -> str:
    """Returns the run as markup; a run without a font has that of the paragraph."""
    text = escape(run.text)
    return f'<font name="{run.font}">{text}</font>' if run.font else text


def _draw_footer(canvas: Any, document: Any, *, title: str) -> None:
    width = A4[0] - 2 * MARGIN
    for text, style in ((title, SMALL), (str(document.page), SMALL_RIGHT)):
        paragraph = _text(text, style)
        _, height = paragraph.wrap(width, MARGIN)
        paragraph.drawOn(canvas, MARGIN, 13 * mm - height)
