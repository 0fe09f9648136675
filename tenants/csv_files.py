"""Tables as CSV, line by line, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse

# What a spreadsheet takes for the beginning of a formula.
FORMULA_BEGINS = ("=", "+", "-", "@")
EXCEL = "excel"
BYTE_ORDER_MARK = "\ufeff"


class _Line:
    """A file for the csv writer that gives back each line instead of keeping it."""

    def write(self, value: str) -> str:
        return value


def inert(text: str) -> str:
    """A cell that a spreadsheet does not run as a formula; some pass over white space to find its beginning."""
    return f"'{text}" if text[:1] in ("\t", "\r", "\n") or text.lstrip()[:1] in FORMULA_BEGINS else text


def is_for_excel(request: HttpRequest) -> bool:
    """True where the address asks for it: `?for=excel`."""
    return request.GET.get("for") == EXCEL


def response(
    name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], *, for_excel: bool = False
) -> StreamingHttpResponse:
    """A file called `name`. Texts of others are made `inert` by the caller.

    `for_excel`: as a spreadsheet opens it where decimals have a comma: with a byte order mark, without which it does
    not take the file for UTF-8, with semicolons between cells, and with decimal commas.
    """
    writer = csv.writer(_Line(), delimiter=";" if for_excel else ",")

    def lines() -> Iterator[str]:
        if for_excel:
            yield BYTE_ORDER_MARK
        yield writer.writerow(head)
        for row in rows:
            yield writer.writerow([_with_comma(cell) for cell in row] if for_excel else row)

    answer = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _with_comma(cell: Any) -> Any:
    return f"{cell:f}".replace(".", ",") if isinstance(cell, Decimal | float) else cell
