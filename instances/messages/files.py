"""A page of messages as a file: JSON lines, CSV, a zip of the stored values, or one stored value. Pure.

JSON lines and CSV have what the page shows. The values of a zip are whole; a reader from whom fields of values are
masked gets no zip.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from instances.messages.content import Content
from instances.messages.rendering import ShownMessage
from tenants.csv_files import inert

JSON_LINES, CSV, ZIP, VALUE = "jsonl", "csv", "zip", "value"
FILE_FORMATS: Final = (JSON_LINES, CSV, ZIP, VALUE)
# Formats that have values as they are stored.
RAW_FORMATS: Final = (ZIP, VALUE)
MEDIA_TYPES: Final[Mapping[str, str]] = {
    JSON_LINES: "application/x-ndjson",
    CSV: "text/csv; charset=utf-8",
    ZIP: "application/zip",
    VALUE: "application/octet-stream",
}
SUFFIXES: Final[Mapping[str, str]] = {JSON_LINES: ".jsonl", CSV: ".csv", ZIP: ".zip", VALUE: ".bin"}
CSV_COLUMNS: Final = (
    "partition", "offset", "timestamp", "key", "key_format", "value", "value_format", "value_bytes", "truncated",
    "headers", "transaction", "marker",
)  # fmt: skip
INDEX_FILE_NAME: Final = "messages.jsonl"
# Time of the files in a zip, constant so that the same messages give the same zip.
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)


def json_lines(api_messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line of JSON for each message. `api_messages` are the messages as the API returns them."""
    return "".join(json.dumps(message, ensure_ascii=False) + "\n" for message in api_messages)


def csv_rows(shown: Sequence[ShownMessage], api_messages: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Any]]:
    """Yields a row for each message. Texts that a spreadsheet would run as a formula begin with an apostrophe."""
    for message, api_message in zip(shown, api_messages, strict=True):
        record = message.record
        headers = [[name, value.data] for name, value in message.headers]
        yield (
            record.partition, record.offset, api_message["timestamp"] or "",
            _cell(message.key), message.key.format, _cell(message.value), message.value.format, message.value.bytes,
            "true" if message.key.truncated or message.value.truncated else "false",
            json.dumps(headers, ensure_ascii=False) if headers else "",
            "" if record.transaction is None else record.transaction.state or "unknown", record.marker or "",
        )  # fmt: skip


def zipped(shown: Sequence[ShownMessage], api_messages: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns a zip with a file for each value, named after partition and offset, and the messages as JSON lines."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(INDEX_FILE_NAME, _ZIP_TIME), json_lines(api_messages))
        for message in shown:
            record = message.record
            if record.value is not None:
                archive.writestr(zipfile.ZipInfo(f"{record.partition}-{record.offset}.bin", _ZIP_TIME), record.value)
    return out.getvalue()


def _cell(shown: Content) -> str:
    return inert(shown.data or "")
