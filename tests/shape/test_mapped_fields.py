"""Every field that a gateway may forward is listed with what it names, so that a new one is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.protocol.fields import Direction, FieldSpec, Names, message_class
from brokers.engine.protocol.layout import slots_of
from brokers.engine.protocol.mapping import may_name
from brokers.engine.upstream.versions import REVIEWED, check_declared

LIST = Path(__file__).with_name("mapped_fields.txt")


def fields(cls: type[Any], version: int, path: str) -> Iterator[tuple[str, FieldSpec]]:
    for slot in slots_of(cls, version):
        if not slot.is_present:
            continue
        item: FieldSpec = slot.spec.inner if slot.spec.kind == "array" else slot.spec
        if item.kind == "nested":
            yield from fields(item.inner, version, f"{path}{slot.name}.")
        else:
            yield f"{path}{slot.name}", item


def found() -> dict[str, Names | None]:
    """Returns what each field of a forwarded message names, which has a declaration or needs one."""
    result: dict[str, Names | None] = {}
    directions: tuple[Direction, ...] = ("request", "response")
    for api_key, (low, high) in REVIEWED.items():
        for direction in directions:
            for version in range(low, high + 1):
                for path, spec in fields(message_class(api_key, direction), version, ""):
                    if spec.names is not None or may_name(path.rpartition(".")[2], spec):
                        result[f"{api_key.name} {direction} {path}"] = spec.names
    return result


def test_each_field_is_listed_with_what_it_names() -> None:
    declared = sorted(f"{field}: {'-' if names is None else names.value}" for field, names in found().items())
    assert declared == LIST.read_text().splitlines()


def test_every_forwarded_message_can_be_mapped() -> None:
    check_declared()


@pytest.mark.parametrize("names", [Names.USER, Names.PRINCIPAL, Names.REGULAR_EXPRESSION])
def test_kinds_without_a_mapping_are_in_no_forwarded_message(names: Names) -> None:
    assert names not in found().values()
