"""Types of Protocol Buffers: messages, fields and enumerations by their full names. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from instances.messages.schemas import limits
from instances.messages.schemas.work import WrongSchema

VARINTS: Final = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool")
FIXED_32: Final = ("fixed32", "sfixed32", "float")
FIXED_64: Final = ("fixed64", "sfixed64", "double")
SCALARS: Final = (*VARINTS, *FIXED_32, *FIXED_64, "string", "bytes")
MESSAGE, ENUM = "message", "enum"
WELL_KNOWN: Final = "google.protobuf."
FIELD_NUMBER_MAX: Final = 2**29 - 1


@dataclass(slots=True)
class Field:
    """One field. `kind` is a scalar, MESSAGE or ENUM; `type_name` is the full name of the latter two."""

    name: str
    number: int
    kind: str
    type_name: str = ""
    is_repeated: bool = False


@dataclass(slots=True)
class MessageType:
    """One message, with the messages declared inside it in their order."""

    name: str
    fields: dict[int, Field] = field(default_factory=dict)
    nested: list[MessageType] = field(default_factory=list)
    is_map_entry: bool = False


class Types:
    """Messages and enumerations of a file and of its imports. `top_level` has the outermost messages of the file
    itself.
    """

    def __init__(self) -> None:
        self.messages: dict[str, MessageType] = {}
        self.enums: dict[str, dict[int, str]] = {}
        self.top_level: list[MessageType] = []
        self._count = 0

    def count(self) -> None:
        """Counts one type, field or value. Raises `WrongSchema` beyond the limit."""
        self._count += 1
        if self._count > limits.SCHEMA_TYPES_MAX:
            raise WrongSchema(f"A schema has at most {limits.SCHEMA_TYPES_MAX} types and fields.")

    def add_message(self, name: str, *, is_map_entry: bool = False) -> MessageType:
        self._require_new(name)
        self.messages[name] = MessageType(name, is_map_entry=is_map_entry)
        return self.messages[name]

    def add_enum(self, name: str) -> dict[int, str]:
        self._require_new(name)
        self.enums[name] = {}
        return self.enums[name]

    def add_field(self, message: MessageType, new_field: Field) -> None:
        self.count()
        if not 0 < new_field.number <= FIELD_NUMBER_MAX:
            raise WrongSchema(f"Field {new_field.name}: {new_field.number} is no number of a field.")
        if new_field.number in message.fields:
            raise WrongSchema(f"{message.name} has two fields with the number {new_field.number}.")
        message.fields[new_field.number] = new_field

    def resolve(self) -> None:
        """Replaces names of types by full names, looked up from the innermost scope outwards."""
        for message in self.messages.values():
            for message_field in message.fields.values():
                if message_field.kind not in SCALARS:
                    message_field.type_name = self._full_name(message_field.type_name, message.name)
                    message_field.kind = ENUM if message_field.type_name in self.enums else MESSAGE

    def message_at(self, indexes: tuple[int, ...]) -> MessageType | None:
        """Returns the message at these positions, each inside the one before; None if there is none."""
        level, message = self.top_level, None
        for index in indexes:
            if not 0 <= index < len(level):
                return None
            message = level[index]
            level = message.nested
        return message

    def message_by_name(self, name: str) -> MessageType | None:
        """Returns a message by its full name, or by the last part of the name if it is unique; else None."""
        if name in self.messages:
            return self.messages[name]
        matches = [
            message
            for full_name, message in self.messages.items()
            if full_name.endswith(f".{name}") and not message.is_map_entry and not full_name.startswith(WELL_KNOWN)
        ]
        return matches[0] if len(matches) == 1 else None

    def _full_name(self, name: str, scope: str) -> str:
        if name.startswith("."):
            if name[1:] in self.messages or name[1:] in self.enums:
                return name[1:]
        else:
            while True:
                candidate = f"{scope}.{name}" if scope else name
                if candidate in self.messages or candidate in self.enums:
                    return candidate
                if not scope:
                    break
                scope = scope.rpartition(".")[0]
        raise WrongSchema(f"There is no type {name}. Paste what is imported into the file, or upload a descriptor set.")

    def _require_new(self, name: str) -> None:
        self.count()
        if name in self.messages or name in self.enums:
            raise WrongSchema(f"{name} is declared twice.")
