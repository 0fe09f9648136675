"""Serializers that accept exactly the documented types: no unknown fields, no `"5"` for 5, no `1` for true."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NoReturn

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.exceptions import ValidationError as BadInput

# Maximum number of choices that a refusal lists.
CHOICES_NAMED_MAX: Final = 40


class StrictSerializer(serializers.Serializer):
    """Base of every request body and query: an unknown field is an error with its own pointer."""

    def to_internal_value(self, data: Any) -> Any:
        errors: dict[str, Any] = {}
        if isinstance(data, Mapping):
            field_names = {name for name, field in self.fields.items() if not field.read_only}
            for name in data:
                if name not in field_names:
                    errors[str(name)] = [ErrorDetail("There is no such field.", code="unknown_field")]
        try:
            value = super().to_internal_value(data)
        except BadInput as error:
            if isinstance(error.detail, dict):
                errors.update(error.detail)
            raise BadInput(errors or error.detail) from None
        if errors:
            raise BadInput(errors)
        return value


class Text(serializers.CharField):
    """JSON string without conversion (numbers are refused, spaces are not trimmed)."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("trim_whitespace", False)
        if not kwargs.get("allow_blank"):
            kwargs.setdefault("min_length", 1)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Integer(serializers.IntegerField):
    """JSON integer; `min_value` and `max_value` should be given."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class Number(serializers.FloatField):
    """Finite JSON number."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return super().to_internal_value(data)


class Flag(serializers.BooleanField):
    """JSON true or false."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Choice(serializers.ChoiceField):
    """Value of a closed set, as a JSON string. A refusal lists the values."""

    default_error_messages: ClassVar = {"invalid_choice": "This is no choice here. Choices: {choices}."}

    def fail(self, key: str, **values: Any) -> NoReturn:
        words = [str(word) for word in self.choices]
        more = ["…"] if len(words) > CHOICES_NAMED_MAX else []
        super().fail(key, choices=", ".join(words[:CHOICES_NAMED_MAX] + more), **values)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return str(super().to_internal_value(data))


# Within a day of the calendar's ends an instant has no local time in some time zones, so that no page could show it.
CALENDAR_BEGINS = datetime(1, 1, 2, tzinfo=UTC)
CALENDAR_ENDS = datetime(9999, 12, 31, tzinfo=UTC)


class Instant(serializers.DateTimeField):
    """RFC 3339 date and time with offset, as a JSON string. The first and the last day of the calendar are refused."""

    def to_internal_value(self, value: Any) -> Any:
        if not isinstance(value, str):
            self.fail("invalid", format="RFC 3339")
        moment = super().to_internal_value(value)
        if not value.strip()[-1:].isalpha() and "+" not in value[10:] and "-" not in value[10:]:
            raise BadInput("Say the offset from UTC, for example 2026-01-31T12:00:00Z.", code="no_offset")
        if not CALENDAR_BEGINS <= moment < CALENDAR_ENDS:
            self.fail("overflow")
        return moment
