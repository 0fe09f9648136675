"""Parser of the parts of `.proto` files (proto2, proto3) that decoding needs; it skips options and services. Pure.

Its time is linear in the text. Only the imports from `google/protobuf/` in `WELL_KNOWN` are supported; a schema of
several files is pasted into one file, or uploaded as a descriptor set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from instances.messages.schemas import limits
from instances.messages.schemas.protobuf_types import SCALARS, Field, MessageType, Types
from instances.messages.schemas.work import WrongSchema

_TOKEN = re.compile(
    r"(?P<skipped>\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)"
    r"|(?P<name>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))"
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"|(?P<symbol>[{}\[\]()<>=;,:+/-])"
)
_LABELS: Final = ("optional", "required", "repeated")
_MAP_KEYS: Final = frozenset(SCALARS) - {"float", "double", "bytes"}
_CLOSING: Final = {"{": "}", "[": "]", "(": ")", "<": ">"}
WELL_KNOWN: Final = """
syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Any { string type_url = 1; bytes value = 2; }
message Empty {}
message FieldMask { repeated string paths = 1; }
message DoubleValue { double value = 1; } message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; } message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; } message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; } message StringValue { string value = 1; } message BytesValue { bytes value = 1; }
enum NullValue { NULL_VALUE = 0; }
message Struct { map<string, Value> fields = 1; }
message ListValue { repeated Value values = 1; }
message Value {
  oneof kind {
    NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
    Struct struct_value = 5; ListValue list_value = 6;
  }
}
"""
_WELL_KNOWN_FILES: Final = ("timestamp", "duration", "any", "empty", "field_mask", "wrappers", "struct")
_WELL_KNOWN_IMPORTS: Final = frozenset(f"google/protobuf/{name}.proto" for name in _WELL_KNOWN_FILES)


def parse(text: str) -> Types:
    """Returns the types of a file. Raises `WrongSchema`."""
    types = Types()
    _Parser(WELL_KNOWN, types).file()
    types.top_level.clear()
    _Parser(text, types).file()
    types.resolve()
    if not types.top_level:
        raise WrongSchema("The file declares no message.")
    return types


class _Parser:
    """Recursive-descent parser that adds the declarations of one file to `types`."""

    def __init__(self, text: str, types: Types) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._types = types
        self._package = ""

    def file(self) -> None:
        while (word := self._peek()) is not None:
            if word == "message":
                self._types.top_level.append(self._message(self._package, 0))
            elif word == "enum":
                self._enum(self._package)
            elif word == "package":
                self._next()
                self._package = self._name()
                self._expect(";")
            elif word == "import":
                self._import()
            elif word in ("syntax", "option", "edition", "service", "extend", ";"):
                self._skip_statement()
            else:
                raise self._error()

    def _import(self) -> None:
        self._next()
        if self._peek() in ("public", "weak"):
            self._next()
        name = self._next()[1:-1]
        self._expect(";")
        if name not in _WELL_KNOWN_IMPORTS:
            raise WrongSchema(
                f"{name[:100]} cannot be imported: paste what is used of it, or upload a descriptor set."
            )  # fmt: skip

    def _message(self, scope: str, depth: int) -> MessageType:
        if depth > limits.SCHEMA_DEPTH_MAX:
            raise WrongSchema(f"A schema is nested at most {limits.SCHEMA_DEPTH_MAX} times.")
        self._next()
        message = self._types.add_message(_joined(scope, self._name()))
        self._expect("{")
        self._body(message, depth)
        return message

    def _body(self, message: MessageType, depth: int) -> None:
        """Reads declarations up to the closing brace; those of a oneof are added to the enclosing message."""
        while (word := self._peek()) != "}":
            if word is None:
                raise self._error()
            following = self._peek(1)
            is_field = following is not None and following not in ("{", "=", ";") and self._peek(2) == "="
            if word == "message" and not is_field:
                message.nested.append(self._message(message.name, depth + 1))
            elif word == "enum" and not is_field:
                self._enum(message.name)
            elif word == "oneof" and not is_field:
                self._next()
                self._name()
                self._expect("{")
                self._body(message, depth)
            elif word in ("option", "reserved", "extensions", "extend", ";") and not is_field:
                self._skip_statement()
            elif word == "map" and following == "<":
                self._map(message)
            else:
                self._field(message)
        self._next()

    def _field(self, message: MessageType) -> None:
        is_repeated = False
        if self._peek() in _LABELS and self._peek(2) != "=":
            is_repeated = self._next() == "repeated"
        kind = self._name()
        if kind == "group":
            raise WrongSchema("Groups are not decoded; write a message instead.")
        name = self._name()
        self._types.add_field(message, _field(name, self._field_number(), kind, is_repeated))

    def _map(self, message: MessageType) -> None:
        """Reads a map field, which is a repeated message with the fields key and value."""
        self._next()
        self._expect("<")
        key = self._name()
        self._expect(",")
        value = self._name()
        self._expect(">")
        name = self._name()
        number = self._field_number()
        if key not in _MAP_KEYS:
            raise WrongSchema(f"Field {name}: {key[:100]} is no key of a map.")
        entry = self._types.add_message(f"{message.name}.{name}.entry", is_map_entry=True)
        self._types.add_field(entry, _field("key", 1, key, False))
        self._types.add_field(entry, _field("value", 2, value, False))
        self._types.add_field(message, Field(name, number, "", f".{entry.name}", True))

    def _field_number(self) -> int:
        self._expect("=")
        number = self._integer()
        if self._peek() == "[":
            self._skip_group()
        self._expect(";")
        return number

    def _enum(self, scope: str) -> None:
        self._next()
        values = self._types.add_enum(_joined(scope, self._name()))
        self._expect("{")
        while (word := self._peek()) != "}":
            if word in ("option", "reserved", ";") and self._peek(1) != "=":
                self._skip_statement()
                continue
            name = self._name()
            self._expect("=")
            self._types.count()
            values.setdefault(self._integer(), name)
            if self._peek() == "[":
                self._skip_group()
            self._expect(";")
        self._next()

    def _skip_statement(self) -> None:
        """Skips everything up to a semicolon, or to the end of a block."""
        while (word := self._next()) != ";":
            if word in _CLOSING:
                self._at -= 1
                self._skip_group()
                if word == "{":
                    return

    def _skip_group(self) -> None:
        """Skips a bracket, its content and the closing bracket."""
        expected_closings = [_CLOSING[self._next()]]
        while expected_closings:
            word = self._next()
            if word == expected_closings[-1]:
                expected_closings.pop()
            elif word in _CLOSING:
                expected_closings.append(_CLOSING[word])

    def _peek(self, ahead: int = 0) -> str | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _next(self) -> str:
        word = self._peek()
        if word is None:
            raise WrongSchema("The file ends too early.")
        self._at += 1
        return word

    def _name(self) -> str:
        word = self._next()
        if not (word[0].isalpha() or word[0] in "_.") or len(word) > limits.NAME_CHARS_MAX:
            self._at -= 1
            raise self._error()
        return word

    def _integer(self) -> int:
        word = self._next()
        try:
            return int(word, 0) if len(word) < 20 else 0
        except ValueError:
            self._at -= 1
            raise self._error() from None

    def _expect(self, symbol: str) -> None:
        if self._peek() != symbol:
            raise self._error()
        self._at += 1

    def _error(self) -> WrongSchema:
        word = self._peek()
        before = " ".join(self._tokens[max(0, self._at - 3) : self._at])
        at = "at the end" if word is None else f'at "{word[:40]}"'
        return WrongSchema(f"Not understood {at}" + (f', behind "{before[-80:]}".' if before else "."))


def _field(name: str, number: int, kind: str, is_repeated: bool) -> Field:
    if kind in SCALARS:
        return Field(name, number, kind, is_repeated=is_repeated)
    return Field(name, number, "", kind, is_repeated)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _tokens(text: str) -> Sequence[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise WrongSchema(f'Not understood: "{text[at : at + 20]}"')
        at = match.end()
        if match["skipped"] is None:
            tokens.append(match[0])
    return tokens
