"""Messages with known content for every api, version and direction, derived from our own declarations.

Three variants: `full` (every field set to a value that occurs once, two items in every array), `blank` (defaults, empty
arrays) and `nulls` (null wherever the version allows it, one item in the other arrays).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from brokers.engine.protocol.apis import APIS
from brokers.engine.protocol.fields import OWN_TAGS_FROM, FieldSpec, message_class
from brokers.engine.protocol.layout import slots_of

Direction = Literal["request", "response"]
Variant = Literal["full", "blank", "nulls"]
VARIANTS: tuple[Variant, ...] = ("full", "blank", "nulls")
DIRECTIONS: tuple[Direction, ...] = ("request", "response")

# Other codecs convert timestamps to dates; whole seconds survive that.
TIMESTAMP_MS = 1_600_000_000_000


def every_message() -> Iterator[tuple[int, int, Direction]]:
    """Yield `(api key, version, direction)` of every message in the table."""
    for api_key, api in sorted(APIS.items()):
        for version in range(api.version_max + 1):
            for direction in DIRECTIONS:
                yield api_key, version, direction


def name_of(message: tuple[int, int, Direction]) -> str:
    api_key, version, direction = message
    return f"{APIS[api_key].key.name.lower()}-v{version}-{direction}"


def _is_own(spec: FieldSpec) -> bool:
    """Return whether the field is our own, unknown to other codecs."""
    return spec.tag is not None and spec.tag >= OWN_TAGS_FROM


class _Maker:
    def __init__(self, version: int, variant: Variant) -> None:
        self.version = version
        self.variant = variant
        self.count = 0

    def struct(self, cls: type[Any]) -> Any:
        values = {
            slot.name: self.value(slot.name, slot.spec)
            for slot in slots_of(cls, self.version)
            if slot.is_present and self.variant != "blank" and not _is_own(slot.spec)
        }
        return cls(**values)

    def value(self, name: str, spec: FieldSpec) -> Any:
        if self.variant == "nulls" and spec.is_nullable(self.version):
            return None
        self.count += 1
        if spec.kind == "array":
            items = 2 if self.variant == "full" else 1
            return [self.value(name, spec.inner) for _ in range(items)]
        if spec.kind == "nested":
            return self.struct(spec.inner)
        return self.scalar(name, spec.kind)

    def scalar(self, name: str, kind: str) -> Any:
        n = self.count
        if name.endswith("error_code"):
            return (6, 0, 3, 1)[n % 4]  # the first one is 0: kafka-python reads answers with an error differently
        if kind in ("text",):
            return f"näme-{n}"
        if kind in ("blob", "records"):
            return b"\x00\xffdata" + bytes((n % 256,))
        if kind == "uuid":
            return bytes(range(n % 100 + 1, n % 100 + 17))
        if kind == "boolean":
            return n % 3 != 0
        if kind == "float64":
            return n + 0.5
        if kind == "int64":
            return TIMESTAMP_MS + n * 1000
        limit = {"int8": 100, "int16": 30_000, "uint16": 60_000}.get(kind, 2_000_000_000)
        return n * 7 % limit + 1 if kind == "int8" else (n * 257) % limit


def sample(api_key: int, version: int, direction: Direction, variant: Variant) -> Any:
    """Return the sample message of this variant; fields that the version lacks have their default."""
    return _Maker(version, variant).struct(message_class(api_key, direction))
