"""Serialisation of cached values as JSON: reading them creates data only and executes nothing.

In addition to JSON's types there are tuples, frozen sets, instants, mappings with keys of any kind, messages, and
dataclasses declared with `cacheable`. Each of these is an object with one name that begins with `~`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, TypeVar

from django.utils.functional import Promise

from tenants.errors import Message

# Limit of one value. A group of 10,000 partitions takes a sixth of it.
CACHED_VALUE_BYTES_MAX: Final = 4_194_304
TYPE_KEY_PREFIX: Final = "~"
TUPLE, FROZEN_SET, INSTANT, MAPPING, OBJECT, MESSAGE = (TYPE_KEY_PREFIX + letter for letter in "tsdmog")

Declared = TypeVar("Declared", bound=type)
_declared: dict[str, type] = {}


class ValueTooLarge(ValueError):
    """The value exceeds `CACHED_VALUE_BYTES_MAX`."""


class NotCacheable(TypeError):
    """A part of the value has an unsupported type."""


class UnreadableValue(ValueError):
    """The text was not written by `dumps`, or its class has changed since."""


def cacheable(cls: Declared) -> Declared:
    """Declares a dataclass as cacheable (a decorator). Its name must be unique."""
    if _declared.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"two classes are called {cls.__name__}")
    return cls


def dumps(value: Any) -> bytes:
    """Serialises a value.

    Raises:
        ValueTooLarge: it exceeds `CACHED_VALUE_BYTES_MAX`.
        NotCacheable: a part of it has an unsupported type.
    """
    try:
        text = json.dumps(_plain(value), separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:  # a number that JSON does not have
        raise NotCacheable(str(error)) from error
    if len(text) > CACHED_VALUE_BYTES_MAX:
        raise ValueTooLarge(f"{len(text)} bytes")
    return text


def loads(text: bytes) -> Any:
    """Restores a value written by `dumps`.

    Raises:
        UnreadableValue: the text was not written by `dumps`.
    """
    try:
        return json.loads(text, object_hook=_restored)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnreadableValue(type(error).__name__) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return {MESSAGE: _plain(value.to_body())}
    if value is None or isinstance(value, str | int | float):
        return value
    kind = type(value)
    if kind is list:
        return [_plain(element) for element in value]
    if kind is tuple:
        return {TUPLE: [_plain(element) for element in value]}
    if kind is frozenset:
        return {FROZEN_SET: [_plain(element) for element in value]}
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    if kind is datetime:
        return {INSTANT: value.isoformat()}
    if _declared.get(kind.__name__) is kind:
        return {OBJECT: [kind.__name__, *(_plain(getattr(value, field.name)) for field in fields(kind))]}
    if isinstance(value, Promise):
        return str(value)
    raise NotCacheable(f"{kind.__module__}.{kind.__qualname__} cannot be kept in the cache; see tenants.cached_values")


def _plain_mapping(value: Mapping[Any, Any]) -> Any:
    if all(type(key) is str and not key.startswith(TYPE_KEY_PREFIX) for key in value):
        return {key: _plain(element) for key, element in value.items()}
    return {MAPPING: [[_plain(key), _plain(element)] for key, element in value.items()]}


def _restored(body: dict[str, Any]) -> Any:
    if len(body) != 1:
        return body
    (type_key,) = body
    restore = _RESTORED.get(type_key)
    return body if restore is None else restore(body[type_key])


def _object(parts: list[Any]) -> Any:
    cls = _declared[parts[0]]
    return cls(**dict(zip((field.name for field in fields(cls)), parts[1:], strict=True)))


_RESTORED: Final[dict[str, Callable[[Any], Any]]] = {
    TUPLE: tuple,
    FROZEN_SET: frozenset,
    INSTANT: datetime.fromisoformat,
    MAPPING: dict,
    OBJECT: _object,
    MESSAGE: Message.from_body,
}
