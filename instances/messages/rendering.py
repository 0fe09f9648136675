"""Contents of messages as one reader may see them: decoded by schema, masked, and cut. Pure.

Filters run on the shown contents. A reader who may not see a field cannot search for it either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from instances.messages import content, exact_json, limits
from instances.messages.content import Content
from instances.messages.exact_json import ExactNumber, Members, NotJson
from instances.messages.interfaces import Record
from instances.messages.masks import HEADER, HIDDEN, KEY, VALUE, Masks
from instances.messages.schemas import sources
from instances.messages.schemas.sources import Decoded, SchemaSource
from instances.messages.schemas.work import NO_SCHEMA, Undecodable
from instances.messages.value_filter import HEADERS, OFFSET, PARTITION, TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A record with its contents as text."""

    record: Record
    key: Content
    value: Content
    headers: Sequence[tuple[str, Content]]


class Renderer:
    """Shows the records of one topic to one reader, in the format `shown_as`, cut at `bytes_max`."""

    def __init__(self, schemas: SchemaSource, masks: Masks, shown_as: str, bytes_max: int) -> None:
        self._schemas = schemas
        self._masks = masks
        self._shown_as = shown_as
        self._bytes_max = bytes_max
        # The last key and value with their decoded form, because a filter and then the page decode the same one.
        self._last_decoded: dict[str, tuple[bytes, Decoded | None]] = {}

    def show(self, record: Record) -> ShownMessage:
        return ShownMessage(
            record=record,
            key=self._show(KEY, record.key),
            value=self._show(VALUE, record.value),
            headers=[self._header(name, raw, self._shown_as) for name, raw in record.headers],
        )

    def searched_key(self, record: Record) -> bytes:
        """Returns the bytes of the key in which filters search."""
        return self._searched(KEY, record.key)

    def searched_value(self, record: Record) -> bytes:
        return self._searched(VALUE, record.value)

    def header_lines(self, record: Record) -> Iterator[bytes]:
        """Yields each header as the searched text `name: value`, without the value if it is masked."""
        for name, raw in record.headers:
            is_hidden = self._masks.covers(HEADER) and self._masks.hides_header(content.header_key(name))
            yield name + b": " + (b"" if is_hidden or raw is None else raw)

    def filtered_value(self, record: Record) -> Any:
        """Returns the value as a filter by path sees it: parsed JSON, a text, or None."""
        return self._parsed(VALUE, record.value)

    def variables(self, record: Record) -> dict[str, Any]:
        """Returns the variables of a filter by path: the parts of the message other than its value."""
        shown = (self._header(name, raw, content.AUTO) for name, raw in record.headers)
        headers = Members((name, value.data) for name, value in shown)
        return {
            KEY: self._parsed(KEY, record.key), HEADERS: headers, PARTITION: ExactNumber(str(record.partition)),
            OFFSET: ExactNumber(str(record.offset)), TIMESTAMP: ExactNumber(str(record.timestamp_ms)),
        }  # fmt: skip

    def _show(self, part: str, raw: bytes | None) -> Content:
        if raw is None:
            return content.NULL_CONTENT
        if self._masks.covers(part):
            return self._masked(part, raw)
        formats = sources.FORMATS if self._shown_as == content.AUTO else (self._shown_as,)
        if self._shown_as != content.AUTO and self._shown_as not in sources.FORMATS:
            return content.show(raw, self._shown_as, self._bytes_max)
        try:
            return self._decoded_content(sources.decode(self._schemas, part, raw, formats), len(raw))
        except Undecodable as error:
            is_auto = self._shown_as == content.AUTO
            shown = content.show(raw, content.AUTO if is_auto else content.HEX, self._bytes_max)
            problem = "" if is_auto and error.problem == NO_SCHEMA else error.problem
            return content.with_problem(shown, problem)

    def _decoded_content(self, decoded: Decoded, size_bytes: int, *, is_masked: bool = False) -> Content:
        """Returns the content as JSON, cut at the limit. Raises `NotJson` if it is nested too deeply to be written."""
        text = exact_json.dump(decoded.value)
        cut = text[: self._bytes_max]
        return Content(
            decoded.format, cut, size_bytes, len(cut) < len(text), schema_id=decoded.schema_id, is_masked=is_masked
        )  # fmt: skip

    def _masked(self, part: str, raw: bytes) -> Content:
        """Returns the content with its fields masked. Bytes without a known structure are hidden as a whole, in every
        format.
        """
        decoded = (
            None if self._shown_as in (content.HEX, content.BASE64, *content.NUMBERS) else self._readable(part, raw)
        )
        if decoded is None:
            return Content(content.MASKED, None, len(raw), is_masked=True)
        return self._decoded_content(decoded, len(raw), is_masked=True)

    def _readable(self, part: str, raw: bytes) -> Decoded | None:
        """Returns a decoded key or value as the reader may see it; None if it is hidden, has no known structure, or is
        too large to parse.
        """
        last_raw, last_decoded = self._last_decoded.get(part, (None, None))
        if last_raw is raw:
            return last_decoded
        decoded = self._without_masked(part, raw) if self._masks.covers(part) else self._structured(part, raw)
        self._last_decoded[part] = (raw, decoded)
        return decoded

    def _without_masked(self, part: str, raw: bytes) -> Decoded | None:
        try:
            decoded = self._structured(part, raw)
            if decoded is None:
                return None
            masked = self._masks.apply(part, decoded.value)
            exact_json.dump(masked)
        except (RecursionError, NotJson):
            return None
        return None if masked == HIDDEN else Decoded(decoded.format, masked, decoded.schema_id)

    def _structured(self, part: str, raw: bytes) -> Decoded | None:
        """Returns a key or value decoded by a schema, else as JSON; None if it is neither, or too large to parse."""
        try:
            return sources.decode(self._schemas, part, raw)
        except Undecodable:
            pass
        if len(raw) > limits.JSON_PARSED_BYTES_MAX:
            return None
        try:
            return Decoded(content.JSON, exact_json.parse(raw.decode()))
        except (UnicodeDecodeError, NotJson):
            return None

    def _searched(self, part: str, raw: bytes | None) -> bytes:
        """Returns the bytes in which filters search: the stored ones, or for a masked reader the shown ones."""
        if raw is None or not self._masks.covers(part):
            return raw or b""
        decoded = self._readable(part, raw)
        return b"" if decoded is None else exact_json.dump(decoded.value).encode()

    def _parsed(self, part: str, raw: bytes | None) -> Any:
        if raw is None:
            return None
        decoded = self._readable(part, raw)
        if decoded is not None:
            return decoded.value
        if self._masks.covers(part):
            return None
        shown = content.show(raw, content.TEXT, limits.JSON_PARSED_BYTES_MAX)
        return shown.data if shown.format == content.TEXT and not shown.truncated else None

    def _header(self, name: bytes, raw: bytes | None, shown_as: str) -> tuple[str, Content]:
        key = content.header_key(name[: limits.SHOWN_BYTES_MAX])
        if self._masks.covers(HEADER) and self._masks.hides_header(key):
            return key, Content(content.MASKED, None, len(raw or b""), is_masked=True)
        return key, content.show(raw, content.AUTO if shown_as in sources.FORMATS else shown_as, self._bytes_max)
