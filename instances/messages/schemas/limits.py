"""Limits of schemas, and of the cost of decoding a key or value by one. Pure."""

from __future__ import annotations

from typing import Final

SCHEMA_CHARS_MAX: Final = 65_536
# Types and fields of one schema, and their nesting.
SCHEMA_TYPES_MAX: Final = 5_000
SCHEMA_DEPTH_MAX: Final = 32
NAME_CHARS_MAX: Final = 255
SCHEMAS_PER_TOPIC_MAX: Final = 20
SCHEMAS_PER_INSTANCE_MAX: Final = 500
# Parsed schemas that a web process caches.
PARSED_KEPT_MAX: Final = 32

# One key or value: bytes, decoded values, characters of names and texts, and nesting. A schema of a few lines can
# make a value of a few bytes decode to more than fits into memory.
DECODED_BYTES_MAX: Final = 262_144
DECODED_VALUES_MAX: Final = 20_000
DECODED_CHARS_MAX: Final = 1_000_000
DECODED_DEPTH_MAX: Final = 64
