"""Layout of one version of a message: its fields, their order and their minimum sizes.

The two compilers share it, so that they agree on the contents of a version.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import calcsize
from typing import Any

from brokers.engine.protocol.fields import FIXED, FieldSpec, fields_of


@dataclass(frozen=True, slots=True)
class Slot:
    """A field of a struct in one version; `is_present` is False if the version does not have it."""

    name: str
    spec: FieldSpec
    default: Any
    is_present: bool


def slots_of(cls: type[Any], version: int) -> list[Slot]:
    """Returns every field of the class in the order of the constructor."""
    return [Slot(name, spec, default, spec.exists(version)) for name, spec, default in fields_of(cls)]


def untagged_slots(cls: type[Any], version: int, is_flexible: bool) -> list[Slot]:
    """Returns the untagged fields of this version in wire order."""
    return [
        slot for slot in slots_of(cls, version) if slot.is_present and not (is_flexible and slot.spec.tag is not None)
    ]


def tagged_slots(cls: type[Any], version: int, is_flexible: bool) -> list[Slot]:
    """Returns the tagged fields of this version in ascending order of tags."""
    result = [slot for slot in slots_of(cls, version) if slot.is_present and is_flexible and slot.spec.tag is not None]
    return sorted(result, key=lambda slot: slot.spec.tag or 0)


def size_min(spec: FieldSpec, version: int, is_flexible: bool) -> int:
    """Returns the minimum size in bytes of a field or array element, which bounds their number in a frame."""
    if spec.kind in FIXED:
        return calcsize(">" + FIXED[spec.kind])
    if spec.kind == "nested":
        if spec.is_nullable(version):
            return 1
        return struct_size_min(spec.inner, version, is_flexible)
    if is_flexible:
        return 1
    return 2 if spec.kind == "text" else 4


def struct_size_min(cls: type[Any], version: int, is_flexible: bool) -> int:
    """Returns the minimum size in bytes of a struct, with its section of tagged fields."""
    return (
        sum(size_min(slot.spec, version, is_flexible) for slot in untagged_slots(cls, version, is_flexible))
        + is_flexible
    )


def item_bytes_min(cls: type[Any], version: int, is_flexible: bool) -> int | None:
    """Returns the minimum size in bytes of an element in the arrays of a struct, except arrays of numbers; None if it
    has none.
    """
    widths: list[int] = []
    for slot in slots_of(cls, version):
        spec = slot.spec
        if not slot.is_present or spec.kind not in ("array", "nested"):
            continue
        element = spec.inner if spec.kind == "array" else spec
        if spec.kind == "array" and element.kind not in FIXED:
            widths.append(max(1, size_min(element, version, is_flexible)))
        if element.kind == "nested":
            nested_bytes = item_bytes_min(element.inner, version, is_flexible)
            widths += [] if nested_bytes is None else [nested_bytes]
    return min(widths, default=None)


def is_default_factory(default: Any) -> bool:
    """True if the default of a field is made by a call (a list, a struct) and not a constant."""
    return callable(default)
