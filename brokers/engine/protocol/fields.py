"""Vocabulary of the declarations of messages: a class per struct, and fields with version ranges.

    @response(ApiKey.HEARTBEAT)
    class HeartbeatResponse:
        throttle_time_ms: int = int32(since=1)
        error_code: int = int16()

The comment above a message lists what each version adds. The decorators make slotted dataclasses. Handlers construct
them by keyword, generated decoders by position. `since` and `until` bound the versions with the field, `null_since` and
`null_until` those in which it may be null. `tag` makes it a tagged field, which is written only if it differs from its
default. The modules of messages are imported on first use, to save memory and start-up time (`message_class`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Literal, TypeVar, dataclass_transform

from brokers.engine.protocol.apis import APIS, ApiKey

# Versions above all others: `until` of a field that still exists, `null_since` of a field that is never null.
LATEST: Final = 1 << 15
NO_NULL: Final = 1 << 15
UUID_ZERO: Final = bytes(16)

Direction = Literal["request", "response"]
T = TypeVar("T")

# Kinds of constant width, with their letters in `struct` formats.
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


class Names(enum.Enum):
    """Kind of thing that a field names, by which a gateway maps it (`mapping`)."""

    TOPIC = "topic"
    TOPIC_ID = "topic id"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    # A group or a transactional id, depending on another field of the message.
    COORDINATOR_KEY = "group or transactional id"
    USER = "user"
    PRINCIPAL = "principal"
    NODE = "node"
    # Host and port of the node that the same struct names.
    HOST = "host"
    PORT = "port"
    RACK = "rack"
    CLUSTER_ID = "cluster id"
    REGULAR_EXPRESSION = "regular expression"
    # Text for people, in which names may occur.
    FREE_TEXT = "free text"
    NONE = "nothing"


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """Encoding of one field. `inner` is the class of a nested struct, or the FieldSpec of an array's elements. `names`
    is the kind of thing that the field names, None if it is not declared.
    """

    kind: str
    since: int = 0
    until: int = LATEST
    null_since: int = NO_NULL
    null_until: int = LATEST
    tag: int | None = None
    inner: Any = None
    names: Names | None = None

    def exists(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        return self.null_since <= version <= self.null_until


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declares a struct within a message."""
    return dataclasses.dataclass(slots=True)(cls)


@dataclass_transform(kw_only_default=True)
def request(api_key: ApiKey) -> Callable[[type[T]], type[T]]:
    """Declares the request body of an API."""
    return _message(api_key, "request")


@dataclass_transform(kw_only_default=True)
def response(api_key: ApiKey) -> Callable[[type[T]], type[T]]:
    """Declares the response body of an API."""
    return _message(api_key, "response")


def _message(api_key: ApiKey, direction: Direction) -> Callable[[type[T]], type[T]]:
    def register(cls: type[T]) -> type[T]:
        message_class = struct(cls)
        assert (int(api_key), direction) not in MESSAGES, (api_key, direction)
        MESSAGES[int(api_key), direction] = message_class
        return message_class

    return register


def fields_of(cls: type[Any]) -> list[tuple[str, FieldSpec, Any]]:
    """Returns `(name, spec, default)` of every field in wire order.

    The default of an array is `list`, that of a nested struct its class.
    """
    return [
        (
            field.name,
            field.metadata["wire"],
            field.default_factory if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(cls)
    ]


# First tag of Penstock's own fields between brokers, far above Kafka's tags.
OWN_TAGS_FROM: Final = 10_000


def _scalar(kind: str) -> Callable[..., Any]:
    default_value: Any = {"boolean": False, "float64": 0.0, "uuid": UUID_ZERO}.get(kind, 0)

    def declare(
        *,
        since: int = 0,
        until: int = LATEST,
        tag: int | None = None,
        default: Any = default_value,
        names: Names | None = None,
    ) -> Any:
        spec = FieldSpec(kind, since, until, tag=tag, names=names)
        return dataclasses.field(default=default, metadata={"wire": spec})

    declare.__name__ = kind
    declare.__doc__ = f"Declares a field of kind {kind}."
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


def _variable(kind: str, default_value: Any) -> Callable[..., Any]:
    def declare(
        *,
        since: int = 0,
        until: int = LATEST,
        null_since: int = NO_NULL,
        null_until: int = LATEST,
        tag: int | None = None,
        default: Any = default_value,
        names: Names | None = None,
    ) -> Any:
        spec = FieldSpec(kind, since, until, null_since, null_until, tag, names=names)
        return dataclasses.field(default=default, metadata={"wire": spec})

    declare.__name__ = kind
    declare.__doc__ = f"Declares a field of kind {kind}, which is encoded after its length."
    return declare


text = _variable("text", "")
blob = _variable("blob", b"")
# A record set, which the codecs treat as opaque bytes (section B of the spec).
records = _variable("records", None)


def nested(
    cls: type[Any], *, since: int = 0, until: int = LATEST, null_since: int = NO_NULL, tag: int | None = None
) -> Any:
    """Declares a nested struct. A nullable one follows a marker byte: 1 if present, -1 if null."""
    spec = FieldSpec("nested", since, until, null_since, tag=tag, inner=cls)
    if null_since != NO_NULL:
        return dataclasses.field(default=None, metadata={"wire": spec})
    return dataclasses.field(default_factory=cls, metadata={"wire": spec})


def element(kind: str, names: Names) -> FieldSpec:
    """Returns the encoding of the elements of a list of names, for `array`."""
    return FieldSpec(kind, names=names)


def array(
    inner: type[Any] | str | FieldSpec,
    *,
    since: int = 0,
    until: int = LATEST,
    null_since: int = NO_NULL,
    null_until: int = LATEST,
    tag: int | None = None,
    default: list[Any] | None = (),  # type: ignore[assignment]
) -> Any:
    """Declares a list of structs, or of elements of a kind ("int32", "text", …); the default is an empty list, or null
    with `default=None`.
    """
    if isinstance(inner, FieldSpec):
        element_spec = inner
    else:
        element_spec = FieldSpec(inner) if isinstance(inner, str) else FieldSpec("nested", inner=inner)
    spec = FieldSpec("array", since, until, null_since, null_until, tag, element_spec)
    if default is None:
        return dataclasses.field(default=None, metadata={"wire": spec})
    return dataclasses.field(default_factory=list, metadata={"wire": spec})


def message_class(api_key: int, direction: Direction) -> type[Any]:
    """Returns the declared class of an API's request or response. Raises KeyError for an unknown api key."""
    result = MESSAGES.get((api_key, direction))
    if result is None:
        import_module(f"brokers.engine.protocol.messages.{APIS[api_key].module}")
        result = MESSAGES[api_key, direction]
    return result
