"""Output of the tools: rows of plain values, printed as text for people or as JSON lines for programs."""

from __future__ import annotations

import json
from typing import Final, TextIO

Value = str | int | bool | None | list["Value"] | dict[str, "Value"]
Row = dict[str, Value]

KIND: Final = "row"


def escaped(data: bytes) -> str:
    """Returns bytes as text that is safe on a terminal: unprintable bytes are escaped, backslashes doubled."""
    text = data.replace(b"\\", b"\\\\").decode("utf-8", errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


class Printer:
    """Writes rows to `out`, one per line."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out = out
        self._as_json = as_json

    def row(self, row: Row) -> None:
        if self._as_json:
            self._out.write(json.dumps(row) + "\n")
        else:
            fields = (f"{name}={_text(value)}" for name, value in row.items() if name != KIND and value is not None)
            self._out.write(f"{row[KIND]}: {' '.join(fields)}\n")


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f'"{value}"' if " " in value or not value else value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
