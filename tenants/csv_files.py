"""CSV tables, streamed line by line and safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse

# Characters that begin a formula in spreadsheets.
FORMULA_BEGINS = ("=", "+", "-", "@")
EXCEL = "excel"
BYTE_ORDER_MARK = "\ufeff"


class _Line:
    """File object for the csv writer that returns each line instead of storing it."""

    def write(self, value: str) -> str:
        return value


def inert(text: str) -> str:
    """Returns a cell that spreadsheets do not execute as a formula; some of them ignore leading white space."""
    return f"'{text}" if text[:1] in ("\t", "\r", "\n") or text.lstrip()[:1] in FORMULA_BEGINS else text


def is_for_excel(request: HttpRequest) -> bool:
    """True if the URL requests it: `?for=excel`."""
    return request.GET.get("for") == EXCEL


def response(
    name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], *, for_excel: bool = False
) -> StreamingHttpResponse:
    """Returns a streaming response with a file called `name`. The caller makes untrusted texts `inert`.

    `for_excel` writes the format of spreadsheets with decimal commas: a byte order mark, without which they do not
    detect UTF-8, semicolons between cells, and decimal commas.
    """
    writer = csv.writer(_Line(), delimiter=";" if for_excel else ",")

    def lines() -> Iterator[str]:
        if for_excel:
            yield BYTE_ORDER_MARK
        yield writer.writerow(head)
        for row in rows:
            yield writer.writerow([_with_comma(cell) for cell in row] if for_excel else row)

    response_ = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    response_.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response_


def _with_comma(cell: Any) -> Any:
    return f"{cell:f}".replace(".", ",") if isinstance(cell, Decimal | float) else cell
