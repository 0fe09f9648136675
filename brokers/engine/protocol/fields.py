"""The vocabulary in which messages are declared: a class per struct, a field per line, version ranges on the fields.

    @response(ApiKey.HEARTBEAT)
    class HeartbeatResponse:
        throttle_time_ms: int = int32(since=1)
        error_code: int = int16()

The decorators make slotted dataclasses: data without behaviour. People construct them by keyword, generated code by
position (`compile_decode`). `since` and `until` bound the versions that carry a field, `null_since` and `null_until`
those in which it may be null, `tag` makes it a tagged field: written only when it differs from its default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, dataclass_transform

from brokers.engine.protocol.apis import ApiKey

LATEST: Final = 1 << 15
NO_NULL: Final = 1 << 15
UUID_ZERO: Final = bytes(16)

Direction = Literal["request", "response"]
T = TypeVar("T")

# Kinds of a constant width, with their letter in `struct` formats.
FIXED: Final[dict[str, str]] = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

MESSAGES: dict[tuple[int, Direction], type[Any]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """How one field stands on the wire. `of` is the struct's class, or the FieldSpec of an array's items."""

    kind: str
    since: int = 0
    until: int = LATEST
    null_since: int = NO_NULL
    null_until: int = LATEST
    tag: int | None = None
    of: Any = None

    def exists(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        return self.null_since <= version <= self.null_until


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """A part of a message."""
    return dataclasses.dataclass(slots=True)(cls)


@dataclass_transform(kw_only_default=True)
def request(api_key: ApiKey) -> Callable[[type[T]], type[T]]:
    """The request body of an API."""
    return _message(api_key, "request")


@dataclass_transform(kw_only_default=True)
def response(api_key: ApiKey) -> Callable[[type[T]], type[T]]:
    """The response body of an API."""
    return _message(api_key, "response")


def _message(api_key: ApiKey, direction: Direction) -> Callable[[type[T]], type[T]]:
    def register(cls: type[T]) -> type[T]:
        made = struct(cls)
        assert (int(api_key), direction) not in MESSAGES, (api_key, direction)
        MESSAGES[int(api_key), direction] = made
        return made

    return register


def fields_of(cls: type[Any]) -> list[tuple[str, FieldSpec, Any]]:
    """`(name, spec, default)` of every field in wire order; an array's default is `list`, a struct's its class."""
    return [
        (
            field.name,
            field.metadata["wire"],
            field.default_factory if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(cls)
    ]


# No field of Kafka's has a tag as high as this: these are for brokers of ours among themselves.
OWN_TAGS_FROM: Final = 10_000


def _scalar(kind: str) -> Callable[..., Any]:
    blank: Any = {"boolean": False, "float64": 0.0, "uuid": UUID_ZERO}.get(kind, 0)

    def declare(*, since: int = 0, until: int = LATEST, tag: int | None = None, default: Any = blank) -> Any:
        return dataclasses.field(default=default, metadata={"wire": FieldSpec(kind, since, until, tag=tag)})

    declare.__name__ = kind
    declare.__doc__ = f"A field of kind {kind}."
    return declare


boolean = _scalar("boolean")
int8 = _scalar("int8")
int16 = _scalar("int16")
uint16 = _scalar("uint16")
int32 = _scalar("int32")
uint32 = _scalar("uint32")
int64 = _scalar("int64")
float64 = _scalar("float64")
uuid = _scalar("uuid")


def _variable(kind: str, blank: Any) -> Callable[..., Any]:
    def declare(
        *,
        since: int = 0,
        until: int = LATEST,
        null_since: int = NO_NULL,
        null_until: int = LATEST,
        tag: int | None = None,
        default: Any = blank,
    ) -> Any:
        spec = FieldSpec(kind, since, until, null_since, null_until, tag)
        return dataclasses.field(default=default, metadata={"wire": spec})

    declare.__name__ = kind
    declare.__doc__ = f"A field of kind {kind}, whose length stands before it."
    return declare


text = _variable("text", "")
blob = _variable("blob", b"")
# A record set: bytes that this room never looks into (section B of the spec).
records = _variable("records", None)


def nested(
    cls: type[Any], *, since: int = 0, until: int = LATEST, null_since: int = NO_NULL, tag: int | None = None
) -> Any:
    """A struct in place. A nullable one stands behind a marker byte: 1 present, -1 null."""
    spec = FieldSpec("nested", since, until, null_since, tag=tag, of=cls)
    if null_since != NO_NULL:
        return dataclasses.field(default=None, metadata={"wire": spec})
    return dataclasses.field(default_factory=cls, metadata={"wire": spec})


def array(
    of: type[Any] | str,
    *,
    since: int = 0,
    until: int = LATEST,
    null_since: int = NO_NULL,
    null_until: int = LATEST,
    tag: int | None = None,
    default: list[Any] | None = (),  # type: ignore[assignment]
) -> Any:
    """A list of structs, or of items of the named kind ("int32", "text", …). Its default is an empty list, or null."""
    item = FieldSpec(of) if isinstance(of, str) else FieldSpec("nested", of=of)
    spec = FieldSpec("array", since, until, null_since, null_until, tag, item)
    if default is None:
        return dataclasses.field(default=None, metadata={"wire": spec})
    return dataclasses.field(default_factory=list, metadata={"wire": spec})
