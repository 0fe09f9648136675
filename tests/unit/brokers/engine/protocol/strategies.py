"""Hypothesis strategies for messages, derived from our own declarations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from brokers.engine.protocol.fields import FieldSpec
from brokers.engine.protocol.layout import slots_of

_INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
# Long enough that compact lengths of two bytes occur.
TEXTS = st.one_of(st.text(max_size=20), st.text(alphabet="aé", min_size=120, max_size=140))


def values(spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that the field may have in this version."""
    strategy: st.SearchStrategy[Any]
    if spec.kind in _INTEGERS:
        strategy = st.integers(*_INTEGERS[spec.kind])
    elif spec.kind == "boolean":
        strategy = st.booleans()
    elif spec.kind == "float64":
        strategy = st.floats(allow_nan=False)
    elif spec.kind == "uuid":
        strategy = st.binary(min_size=16, max_size=16)
    elif spec.kind == "text":
        strategy = TEXTS
    elif spec.kind == "array":
        strategy = st.lists(values(spec.inner, version), max_size=3)
    elif spec.kind == "nested":
        strategy = messages(spec.inner, version)
    else:
        strategy = st.one_of(st.binary(max_size=20), st.binary(min_size=120, max_size=300))
    return st.one_of(st.none(), strategy) if spec.is_nullable(version) else strategy


def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Return a strategy for messages of this class; fields that the version lacks have their default."""
    fields = {slot.name: values(slot.spec, version) for slot in slots_of(cls, version) if slot.is_present}
    return st.builds(cls, **fields)
