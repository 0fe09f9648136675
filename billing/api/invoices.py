"""REST resources of costs (`/costs`) and invoices (`/invoices`): drafts, documents, lines and recomputation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from billing import access, call_limits, costs, downloads
from billing.api.invoice_serializers import (
    CostQuery,
    CostsOut,
    DraftOut,
    InvoiceLineOut,
    InvoiceOut,
    InvoiceReplayOut,
    LineHourOut,
    MinuteQuery,
    PdfQuery,
    RecomputationOut,
    UsageMinuteOut,
)
from billing.invoices import expansion, replays
from billing.invoices.charging import draft
from billing.invoices.periods import month_of
from billing.invoices.recompute import recompute
from billing.lake.replay import LakeBroken
from billing.rating.hours import NoPrice
from tenants.api import pages
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.choices import Scope
from tenants.errors import Conflict


class CostCollection(ApiView):
    tag = "Billing"

    @endpoint("get_costs", Scope.BILLING_READ, query=CostQuery, returns=CostsOut, errors=(409, 429))
    def get(self, request: Request) -> Response:
        """Read the costs of a period before tax.

        Grouped by instance or day these are prices; grouped by topic, user or client id an instance's costs are divided
        in proportion to the bytes moved. An hour (UTC) belongs to the period in which it begins, so that adjacent
        periods sum to the whole; the answer has the full hours as `start` and `end`.
        """
        query = self.query
        call_limits.charge_costs(self.tenant)
        try:
            period_costs = costs.costs(self.tenant, query["start"], query["end"], query["group_by"])
        except NoPrice as error:
            raise Conflict(str(error), code="no_price") from None
        rows = {f"{number:09d}": row for number, row in enumerate(period_costs.rows)}
        page, token = pages.page_of_items(rows.items(), key=lambda item: item[0], **self._page_parameters())
        return self.one(
            {
                "start": period_costs.period.start,
                "end": period_costs.period.end,
                "currency": period_costs.currency,
                "total": period_costs.total,
                "unpriced": period_costs.unpriced,
                "items": [row for _, row in page],
                "next_page_token": token,
            },
            CostsOut,
        )


class InvoiceCollection(ApiView):
    tag = "Billing"

    @endpoint("list_invoices", Scope.BILLING_READ, page_item=InvoiceOut)
    def get(self, request: Request) -> Response:
        """List invoices and credit notes.

        Ordered by issue. The bill of the current month is at `/invoices/draft`.
        """
        return self.page(access.invoices_of(self.tenant), InvoiceOut, order=("issued_at", "number"))


class InvoiceDraft(ApiView):
    tag = "Billing"

    @endpoint("get_invoice_draft", Scope.BILLING_READ, returns=DraftOut, errors=(409,))
    def get(self, request: Request) -> Response:
        """Read the bill of the current month so far and its forecast."""
        now = timezone.now()
        try:
            bills = draft(self.tenant, now)
        except NoPrice as error:
            raise Conflict(str(error), code="no_price") from None
        month, bill = month_of(now), bills.so_far
        return self.one(
            {
                "period_start": month.start,
                "period_end": month.end,
                "until": bill.period.end,
                "currency": bill.currency,
                "subtotal": bill.subtotal,
                "tax": bill.tax,
                "taxes": bill.taxes,
                "total": bill.total,
                "forecast": bills.forecast.total,
                "unpriced": bills.unpriced,
                "lines": bill.lines,
            },
            DraftOut,
        )


class InvoiceDetail(ApiView):
    tag = "Billing"

    @endpoint("get_invoice", Scope.BILLING_READ, returns=InvoiceOut)
    def get(self, request: Request, invoice_id: str) -> Response:
        """Read an invoice or a credit note."""
        return self.one(access.invoice(self.actor, invoice_id), InvoiceOut)


class PdfRenderer(BaseRenderer):
    """Accepts requests for PDF only; the view renders the response itself."""

    media_type = downloads.PDF
    format = "pdf"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data).encode()


class InvoicePdf(ApiView):
    tag = "Billing"
    renderer_classes = (JSONRenderer, PdfRenderer)

    @endpoint("get_invoice_pdf", Scope.BILLING_READ, query=PdfQuery, text_media_type=downloads.PDF)
    def get(self, request: Request, invoice_id: str) -> HttpResponse:
        """Read an invoice as PDF.

        It contains the first 1,000 lines; all lines are at `/invoices/{id}/lines`. A tenant may request 30 documents a
        minute.
        """
        return downloads.invoice_pdf(access.invoice(self.actor, invoice_id), self.query["language"])


class XmlRenderer(BaseRenderer):
    """Accepts requests for XML only; the view renders the response itself."""

    media_type = downloads.XML
    format = "xml"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data).encode()


class InvoiceXml(ApiView):
    tag = "Billing"
    renderer_classes = (JSONRenderer, XmlRenderer)

    @endpoint("get_invoice_xml", Scope.BILLING_READ, text_media_type=downloads.XML, errors=(409, 429))
    def get(self, request: Request, invoice_id: str) -> HttpResponse:
        """Read an invoice as structured data.

        EN 16931 in the syntax Cross Industry Invoice, which ZUGFeRD and Factur-X use. It requires the countries of
        seller and buyer and the seller's tax id at the time of issue. Counts against the same limit of 30 documents a
        minute as PDFs.
        """
        return downloads.invoice_xml(access.invoice(self.actor, invoice_id))


class InvoiceLines(ApiView):
    tag = "Billing"

    @endpoint("list_invoice_lines", Scope.BILLING_READ, page_item=InvoiceLineOut)
    def get(self, request: Request, invoice_id: str) -> Response:
        """List the lines of an invoice."""
        invoice = access.invoice(self.actor, invoice_id)
        return self.page(access.lines_of(invoice), InvoiceLineOut, order=("position",))


class InvoiceLineHours(ApiView):
    tag = "Billing"

    @endpoint("list_invoice_line_hours", Scope.BILLING_READ, page_item=LineHourOut)
    def get(self, request: Request, invoice_id: str, position: int) -> Response:
        """List the hours that a line consists of."""
        line = access.line(access.invoice(self.actor, invoice_id), position)
        return self.page_items(
            expansion.hours_of(line), LineHourOut, key=lambda line_hour: line_hour.hour.isoformat()
        )  # fmt: skip


class InvoiceLineMinutes(ApiView):
    tag = "Billing"

    @endpoint("list_invoice_line_minutes", Scope.BILLING_READ, query=MinuteQuery, page_item=UsageMinuteOut)
    def get(self, request: Request, invoice_id: str, position: int) -> Response:
        """List the metered minutes of one hour of a line by topic, user, client id and direction."""
        line = access.line(access.invoice(self.actor, invoice_id), position)
        # Not ordered by names: tenants choose them, and they would be too long for a page token.
        return self.page(expansion.minutes_of(line, self.query["hour"]), UsageMinuteOut, order=("minute", "id"))


class InvoiceRecomputation(ApiView):
    tag = "Billing"

    @endpoint("recompute_invoice", Scope.BILLING_READ, returns=RecomputationOut, errors=(409, 429))
    def get(self, request: Request, invoice_id: str) -> Response:
        """Recompute an invoice.

        It is recomputed from its stored inputs, from the usage known now, and from the reports in the lake if they
        cover the period. Returns each difference; without one it is equal to the cent. If the lake has too many reports
        for a request, `replay` says how far the worker is with them, and the differences are those of its last replay.
        """
        invoice = access.invoice(self.actor, invoice_id)
        call_limits.charge_recomputation(self.tenant)
        try:
            result = recompute(invoice, lake_rows_max=call_limits.REPLAYED_ROWS_MAX)
        except NoPrice as error:
            raise Conflict(str(error), code="no_price") from None
        except LakeBroken as error:
            raise Conflict(f"The lake cannot be replayed: {error}.", code="lake_broken") from None
        result, replay = replays.merge_replay(invoice, result, timezone.now())
        return self.one(
            {
                "has_inputs": bool(invoice.inputs),
                "is_equal": result.is_equal if invoice.inputs else None,
                "is_replayed": result.is_replayed,
                "replay": asdict(replay),
                "lines": result.lines,
                "subtotal": result.subtotal,
                "differences": [asdict(difference) for difference in result.differences],
            },
            RecomputationOut,
        )

    @endpoint("replay_invoice", Scope.BILLING_READ, returns=InvoiceReplayOut, status=202, errors=(409, 429))
    def post(self, request: Request, invoice_id: str) -> Response:
        """Replay an invoice's period from the lake in the background.

        For invoices whose reports are too many for a request. A tenant has one such replay at a time; `GET` has its
        progress and, for a day, its result.
        """
        invoice = access.invoice(self.actor, invoice_id)
        call_limits.charge_recomputation(self.tenant)
        started = replays.start(acting=self.actor, invoice=invoice, now=timezone.now())
        status = replays.ReplayStatus(state=started.state, noted_at=started.noted_at)
        location = f"{API_ROOT}/invoices/{invoice.pk}/recompute"
        return self.one(asdict(status), InvoiceReplayOut, status=202, location=location)
