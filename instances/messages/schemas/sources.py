"""Schemas of one topic, and the choice of the schema by which a key or value is decoded. Pure.

A `SchemaSource` provides the schemas. The only source is the database (`instances.services.topic_schemas`); a schema
registry would be another one, queried by the ids in the headers of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from instances.messages.schemas import avro, limits, protobuf, wire_format
from instances.messages.schemas.work import NO_SCHEMA, Undecodable

AVRO, PROTOBUF = "avro", "protobuf"
FORMATS: Final = (AVRO, PROTOBUF)
PLAIN, CONFLUENT = "plain", "confluent"
SCHEMA_ID_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """Text of a schema. A framed schema applies to values with its `schema_id`; None applies to all ids."""

    format: str
    framing: str
    text: str
    message: str = ""
    schema_id: int | None = None


class SchemaSource(Protocol):
    """Schemas of the keys or of the values of one topic."""

    def plain(self, part: str) -> Sequence[StoredSchema]:
        """Returns the schemas of the keys or values (`part`) without a header."""
        ...

    def framed(self, part: str, schema_id: int) -> Sequence[StoredSchema]:
        """Returns the schemas of framed keys or values (`part`) with this id, the most specific first."""
        ...


class NoSchemas:
    """Source of a topic without schemas."""

    def plain(self, part: str) -> Sequence[StoredSchema]:
        return ()

    def framed(self, part: str, schema_id: int) -> Sequence[StoredSchema]:
        return ()


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded key or value as parsed JSON; `schema_id` is the id in its header, None without one."""

    format: str
    value: Any
    schema_id: int | None = None


def decode(source: SchemaSource, part: str, raw: bytes, formats: Sequence[str] = FORMATS) -> Decoded:
    """Returns a key or value decoded by the first schema that fits. Raises `Undecodable`."""
    last_error = Undecodable(NO_SCHEMA)
    framed = wire_format.split(raw)
    if framed is not None:
        for stored in source.framed(part, framed.schema_id):
            if stored.format in formats:
                try:
                    return Decoded(stored.format, _framed_value(stored, framed.payload), framed.schema_id)
                except Undecodable as error:
                    last_error = error
    for stored in source.plain(part):
        if stored.format in formats:
            try:
                return Decoded(stored.format, _parsed(stored).decode(raw))
            except Undecodable as error:
                last_error = error
    raise last_error


def check(stored: StoredSchema) -> None:
    """Raises `WrongSchema` for a text that is no schema of its format."""
    _parsed(stored)


def _framed_value(stored: StoredSchema, payload: bytes) -> Any:
    schema = _parsed(stored)
    if isinstance(schema, protobuf.ProtobufSchema):
        indexes, message = wire_format.message_indexes(payload)
        return schema.decode(message, indexes)
    return schema.decode(payload)


@lru_cache(maxsize=limits.PARSED_KEPT_MAX)
def _parsed(stored: StoredSchema) -> avro.AvroSchema | protobuf.ProtobufSchema:
    """Returns the parsed schema. Raises `WrongSchema`."""
    if stored.format == AVRO:
        return avro.parse(stored.text)
    return protobuf.parse(stored.text, stored.message)
