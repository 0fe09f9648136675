"""Schemas of Protocol Buffers: a `.proto` file, or a descriptor set (`protoc --include_imports -o`) in base64. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from instances.messages.schemas import limits, proto_text, protobuf_values
from instances.messages.schemas.protobuf_types import Field, MessageType, Types
from instances.messages.schemas.work import NO_SCHEMA, DecodeBudget, Undecodable, WrongSchema

# The part of google/protobuf/descriptor.proto that describes fields and types.
_DESCRIPTOR = proto_text.parse("""
syntax = "proto2"; package google.descriptor;
message FileDescriptorSet { repeated FileDescriptorProto file = 1; }
message FileDescriptorProto {
  optional string name = 1; optional string package = 2; repeated DescriptorProto message_type = 4;
  repeated EnumDescriptorProto enum_type = 5;
}
message DescriptorProto {
  optional string name = 1; repeated FieldDescriptorProto field = 2; repeated DescriptorProto nested_type = 3;
  repeated EnumDescriptorProto enum_type = 4; optional MessageOptions options = 7;
}
message FieldDescriptorProto {
  optional string name = 1; optional int32 number = 3; optional int32 label = 4; optional int32 type = 5;
  optional string type_name = 6;
}
message EnumDescriptorProto { optional string name = 1; repeated EnumValueDescriptorProto value = 2; }
message EnumValueDescriptorProto { optional string name = 1; optional int32 number = 2; }
message MessageOptions { optional bool map_entry = 7; }
""")
# Scalar types by their number in a field descriptor of protobuf.
_SCALAR_BY_TYPE_NUMBER: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
_GROUP: Final = "10"
_REPEATED: Final = "3"
_FIRST_MESSAGE: Final = (0,)


class ProtobufSchema:
    """Decodes messages of one file. Values without Confluent's header are of the type `message`, or of the first type
    if it is empty.
    """

    def __init__(self, types: Types, message: str) -> None:
        self._types = types
        message_type = types.message_by_name(message) if message else types.message_at(_FIRST_MESSAGE)
        if message_type is None:
            raise WrongSchema(f"The file has no message {message[:100]}, or several.")
        self._plain_message = message_type

    def decode(self, payload: bytes, indexes: tuple[int, ...] | None = None) -> Any:
        """Returns a message as parsed JSON. `indexes` are the message indexes of a framed value, None for a plain one.
        Raises `Undecodable`.
        """
        message = self._plain_message if indexes is None else self._types.message_at(indexes)
        if message is None:
            raise Undecodable(NO_SCHEMA)
        return protobuf_values.decode(self._types, message, payload)


def parse(text: str, message: str) -> ProtobufSchema:
    """Returns the schema of a file or a descriptor set. Raises `WrongSchema`."""
    if len(text) > limits.SCHEMA_CHARS_MAX:
        raise WrongSchema(f"A schema has at most {limits.SCHEMA_CHARS_MAX} characters.")
    descriptor = _descriptor_set(text)
    types = proto_text.parse(text) if descriptor is None else _types(descriptor)
    return ProtobufSchema(types, message)


def _descriptor_set(text: str) -> bytes | None:
    """Returns the bytes of a descriptor set; None for a text that is not base64. No `.proto` file is base64."""
    try:
        return base64.b64decode("".join(text.split()), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _types(raw: bytes) -> Types:
    root = _DESCRIPTOR.messages["google.descriptor.FileDescriptorSet"]
    budget = DecodeBudget(limits.SCHEMA_TYPES_MAX * 8, limits.SCHEMA_CHARS_MAX * 8)
    try:
        files = dict(protobuf_values.decode(_DESCRIPTOR, root, raw, budget)).get("file", [])
    except Undecodable:
        raise WrongSchema("This is neither a .proto file nor a descriptor set in base64.") from None
    types = Types()
    for file in files:
        values = dict(file)
        # The last file of the set is the schema itself; the files that it imports come before it.
        types.top_level = [
            _message(types, dict(entry), values.get("package", "")) for entry in values.get("message_type", [])
        ]
        for entry in values.get("enum_type", []):
            _enum(types, dict(entry), values.get("package", ""))
    types.resolve()
    if not types.top_level:
        raise WrongSchema("The last file of the descriptor set declares no message.")
    return types


def _message(types: Types, values: dict[str, Any], scope: str) -> MessageType:
    name = ".".join(part for part in (scope, str(values.get("name", ""))) if part)
    options = dict(values.get("options", ()))
    message = types.add_message(name, is_map_entry=bool(options.get("map_entry", False)))
    for entry in values.get("field", []):
        types.add_field(message, _field(dict(entry)))
    for entry in values.get("enum_type", []):
        _enum(types, dict(entry), name)
    if message.is_map_entry and not {protobuf_values.KEY, protobuf_values.MAP_VALUE} <= message.fields.keys():
        raise WrongSchema(f"{name} is no entry of a map.")
    message.nested = [_message(types, dict(entry), name) for entry in values.get("nested_type", [])]
    return message


def _field(values: dict[str, Any]) -> Field:
    kind = str(values.get("type", ""))
    name = str(values.get("name", ""))
    if kind == _GROUP:
        raise WrongSchema("Groups are not decoded; write a message instead.")
    number = int(values.get("number", 0))
    is_repeated = str(values.get("label", "")) == _REPEATED
    scalar = _SCALAR_BY_TYPE_NUMBER.get(int(kind or 0))
    if scalar is not None:
        return Field(name, number, scalar, is_repeated=is_repeated)
    return Field(name, number, "", str(values.get("type_name", "")), is_repeated)


def _enum(types: Types, values: dict[str, Any], scope: str) -> None:
    names = types.add_enum(".".join(part for part in (scope, str(values.get("name", ""))) if part))
    for entry in values.get("value", []):
        types.count()
        enum_value = dict(entry)
        names.setdefault(int(enum_value.get("number", 0)), str(enum_value.get("name", "")))
