"""Strict types of request bodies: no number for a text, no "true" for true."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from django.urls import get_resolver
from rest_framework import serializers

from tenants.api.strict import StrictSerializer

LENIENT: Final = (
    serializers.CharField, serializers.IntegerField, serializers.FloatField, serializers.BooleanField,
    serializers.ChoiceField,
)  # fmt: skip
# Values of a query are texts.
OF_QUERIES: Final = ("Query", "Filter")


def subclasses(of: type[StrictSerializer]) -> Iterator[type[StrictSerializer]]:
    for serializer in of.__subclasses__():
        yield serializer
        yield from subclasses(serializer)


def is_of_a_module(serializer: type[StrictSerializer]) -> bool:
    """False for classes that the schema generator creates."""
    return getattr(sys.modules[serializer.__module__], serializer.__name__, None) is serializer


def is_query(serializer: type[StrictSerializer]) -> bool:
    return serializer.__name__.endswith(OF_QUERIES)


def lenient_fields(serializer: serializers.Serializer) -> list[str]:
    result = []
    for name, field in serializer.fields.items():
        values = field.child if isinstance(field, serializers.ListField) else field
        if type(values) in LENIENT and not field.read_only:
            result.append(name)
    return result


def test_no_field_of_a_request_body_converts_what_it_is_given() -> None:
    assert get_resolver().url_patterns, "all modules of the API are imported"
    bodies = [body for body in subclasses(StrictSerializer) if is_of_a_module(body) and not is_query(body)]
    assert len(bodies) > 50
    found = {body.__qualname__: fields for body in bodies if (fields := lenient_fields(body()))}
    assert not found, "use the fields of tenants.api.strict"


def test_a_lenient_field_is_found() -> None:
    class Body(serializers.Serializer):
        name = serializers.CharField()
        names = serializers.ListField(child=serializers.CharField())

    assert lenient_fields(Body()) == ["name", "names"]
