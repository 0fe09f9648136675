"""Tables as CSV, line by line, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.http import StreamingHttpResponse

# What a spreadsheet takes for the beginning of a formula.
FORMULA_BEGINS = ("=", "+", "-", "@")


class _Line:
    """A file for the csv writer that gives back each line instead of keeping it."""

    def write(self, value: str) -> str:
        return value


def inert(text: str) -> str:
    """A cell that a spreadsheet does not run as a formula; some pass over white space to find its beginning."""
    return f"'{text}" if text[:1] in ("\t", "\r", "\n") or text.lstrip()[:1] in FORMULA_BEGINS else text


def response(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> StreamingHttpResponse:
    """A file called `name`. Whoever makes the rows makes texts of others `inert`."""
    writer = csv.writer(_Line())

    def lines() -> Iterator[str]:
        yield writer.writerow(head)
        for row in rows:
            yield writer.writerow(row)

    answer = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
