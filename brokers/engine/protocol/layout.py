"""What one version of a message looks like: which fields, in which form, and how small it can be at least.

Shared by the two compilers, so that they cannot disagree on what a version contains.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import calcsize
from typing import Any

from brokers.engine.protocol.fields import FIXED, FieldSpec, fields_of


@dataclass(frozen=True, slots=True)
class Slot:
    """A field of a struct's class as one version sees it; `present` is false when the version lacks it."""

    name: str
    spec: FieldSpec
    default: Any
    present: bool


def slots_of(cls: type[Any], version: int) -> list[Slot]:
    """Every field of the class in constructor order."""
    return [Slot(name, spec, default, spec.exists(version)) for name, spec, default in fields_of(cls)]


def in_line(cls: type[Any], version: int, flexible: bool) -> list[Slot]:
    """The fields that stand in their place, in wire order."""
    return [slot for slot in slots_of(cls, version) if slot.present and not (flexible and slot.spec.tag is not None)]


def tagged(cls: type[Any], version: int, flexible: bool) -> list[Slot]:
    """The tagged fields of this version in ascending order of tag."""
    result = [slot for slot in slots_of(cls, version) if slot.present and flexible and slot.spec.tag is not None]
    return sorted(result, key=lambda slot: slot.spec.tag or 0)


def size_min(spec: FieldSpec, version: int, flexible: bool) -> int:
    """The fewest bytes an array item or field of this kind takes; bounds how many of them a frame can hold."""
    if spec.kind in FIXED:
        return calcsize(">" + FIXED[spec.kind])
    if spec.kind == "nested":
        if spec.nullable(version):
            return 1
        return struct_size_min(spec.of, version, flexible)
    if flexible:
        return 1
    return 2 if spec.kind == "text" else 4


def struct_size_min(cls: type[Any], version: int, flexible: bool) -> int:
    """The fewest bytes a struct takes, its tagged fields section included."""
    return sum(size_min(slot.spec, version, flexible) for slot in in_line(cls, version, flexible)) + flexible


def item_bytes_min(cls: type[Any], version: int, flexible: bool) -> int | None:
    """The fewest bytes an item takes in any array of a struct that is not of numbers; None where there is none."""
    widths: list[int] = []
    for slot in slots_of(cls, version):
        spec = slot.spec
        if not slot.present or spec.kind not in ("array", "nested"):
            continue
        inner = spec.of if spec.kind == "array" else spec
        if spec.kind == "array" and inner.kind not in FIXED:
            widths.append(max(1, size_min(inner, version, flexible)))
        if inner.kind == "nested":
            within = item_bytes_min(inner.of, version, flexible)
            widths += [] if within is None else [within]
    return min(widths, default=None)


def is_blank(default: Any) -> bool:
    """Whether the default of a field is made by calling (a list, a struct) rather than a constant."""
    return callable(default)
