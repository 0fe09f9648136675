"""Mapping of the names in decoded messages, derived from the declarations of their fields (`fields.Names`).

A gateway maps each request of a tenant's client from the tenant's names to those of the upstream cluster, and each
response back. An element of a list that names something of another instance is dropped. Pure: names are mapped by a
`NameMap`, messages are changed in place.

    mapping = mapping_of(ApiKey.METADATA, "response", version)
    for _ in mapping.in_pieces(response, ToTenant(...)): ...
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.fields import Direction, FieldSpec, Names, message_class
from brokers.engine.protocol.layout import slots_of

# Kinds of fields that always name something, or have to be declared as naming nothing.
NAMING_KINDS: Final = frozenset({"text", "uuid", "blob", "records"})
# Names of number fields that contain node ids or ports.
_NODE_FIELD: Final = re.compile(r"(?:^|_)(?:node|broker|leader|controller|replica|port)s?(?:_ids?|_nodes)?\Z")
_INSTANCE_ID: Final = re.compile(r"ins-[a-z0-9]{8}")
NO_NODE: Final = -1
# Maximum length of topic names, group ids and transactional ids; with a prefix they still fit into any field.
NAME_CHARACTERS_MAX: Final = 1_024
# Number of list elements that are mapped between two yields; each takes about a microsecond.
ELEMENTS_PER_PIECE: Final = 500


class UndeclaredField(Exception):
    """A field that may name something has no declaration, so that its message cannot be mapped."""


class ForeignName(Exception):
    """A message names something of another instance in a field that cannot be dropped."""


class NodeAddress(NamedTuple):
    """Address of a node."""

    host: str
    port: int


class NameMap(Protocol):
    """Translation of names in one direction."""

    def name(self, names: Names, value: Any) -> Any:
        """Returns the translated name; None if it is of another instance.

        Raises:
            MalformedRequest: the name is too long.
        """

    def node(self, node_id: int) -> NodeAddress | None:
        """Returns the address of a node in this direction; None for an unknown one."""


class ToUpstream:
    """Translation of a tenant's names into those of the upstream cluster."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def name(self, names: Names, value: Any) -> Any:
        if names in _PREFIXED_KINDS:
            if len(value) > NAME_CHARACTERS_MAX:
                raise MalformedRequest(f"a {names.value} has over {NAME_CHARACTERS_MAX} characters")
            return self._prefix + value
        if names is Names.RACK:
            return ""
        return value

    def node(self, node_id: int) -> NodeAddress | None:
        """Returns None, because requests contain no addresses."""
        return None


class ToTenant:
    """Translation of the names of the upstream cluster into a tenant's. Nodes without an address for the tenant become
    `NO_NODE`.
    """

    __slots__ = ("_cluster_id", "_nodes", "_prefix")

    def __init__(self, prefix: str, cluster_id: str, nodes: Mapping[int, NodeAddress]) -> None:
        self._prefix = prefix
        self._cluster_id = cluster_id
        self._nodes = nodes

    def name(self, names: Names, value: Any) -> Any:
        if names in _PREFIXED_KINDS:
            return value[len(self._prefix) :] if value.startswith(self._prefix) else None
        if names is Names.NODE:
            return value if value in self._nodes else NO_NODE
        if names is Names.FREE_TEXT:
            return self._without_instance_names(value)
        if names is Names.CLUSTER_ID:
            return self._cluster_id
        if names is Names.RACK:
            return ""
        return value

    def node(self, node_id: int) -> NodeAddress | None:
        return self._nodes.get(node_id)

    def _without_instance_names(self, text: str) -> str:
        """Returns a message without the instance's prefix; empty if it may be about another instance."""
        stripped = text.replace(self._prefix, "")
        return "" if _INSTANCE_ID.search(stripped) else stripped


_PREFIXED_KINDS: Final = frozenset({Names.TOPIC, Names.GROUP, Names.TRANSACTIONAL_ID, Names.COORDINATOR_KEY})
# Kinds without a defined mapping; no forwarded message has a field of them.
_UNMAPPED_KINDS: Final = frozenset({Names.USER, Names.PRINCIPAL, Names.REGULAR_EXPRESSION})
# Kinds that stay as they are, so that their fields need no visit. Topic ids are random and shown as they are: no
# forwarded request looks one up.
_UNCHANGED_KINDS: Final = frozenset({Names.NONE, Names.TOPIC_ID})


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """Mapping of one field. With `inner` it is a struct or a list of structs."""

    name: str
    names: Names
    is_list: bool
    inner: StructMapping | None = None


@dataclass(frozen=True, slots=True)
class StructMapping:
    """Mapping of one class in one version: the fields that change, and the field with the id of the node whose address
    the struct has.
    """

    fields: tuple[FieldMapping, ...]
    node_field: str | None = None
    has_address: bool = False

    def apply(self, message: Any, name_map: NameMap) -> bool:
        """Maps a struct in place. Returns False if it names something of another instance."""
        for field in self.fields:
            value = getattr(message, field.name)
            if value is None:
                continue
            if field.inner is None:
                mapped = self._map_value(field, value, name_map)
                if mapped is None:
                    return False
                setattr(message, field.name, mapped)
            elif field.is_list:
                value[:] = [element for element in value if field.inner.apply(element, name_map)]
            elif not field.inner.apply(value, name_map):
                return False
        if self.has_address:
            self._set_address(message, name_map)
        return True

    def _map_value(self, field: FieldMapping, value: Any, name_map: NameMap) -> Any:
        if not field.is_list:
            return name_map.name(field.names, value)
        mapped = [name_map.name(field.names, element) for element in value]
        if field.names is Names.NODE:
            return [node for node in mapped if node != NO_NODE]
        return [name for name in mapped if name is not None]

    def _set_address(self, message: Any, name_map: NameMap) -> None:
        assert self.node_field is not None, "checked when the mapping was made"
        node = name_map.node(getattr(message, self.node_field))
        message.host, message.port = ("", NO_NODE) if node is None else node


@dataclass(frozen=True, slots=True)
class MessageMapping:
    """Mapping of the messages of one API in one direction and version: of its lists of structs, which may be long, and
    of its other fields.
    """

    lists: tuple[FieldMapping, ...]
    other_fields: StructMapping

    def apply(self, message: Any, name_map: NameMap) -> None:
        """Maps a message. Raises ForeignName."""
        for _ in self.in_pieces(message, name_map):
            pass

    def in_pieces(self, message: Any, name_map: NameMap) -> Iterator[None]:
        """Maps a message like `apply`, and yields after each piece of a long one."""
        if not self.other_fields.apply(message, name_map):
            raise ForeignName("a message names something of another instance")
        piece = _Piece()
        for field in self.lists:
            assert field.inner is not None, "a list of structs"
            values = getattr(message, field.name)
            if values is not None:
                yield from _list_in_pieces(values, field.inner, name_map, piece)


class _Piece:
    """Number of elements that are mapped until the next yield."""

    __slots__ = ("remaining",)

    def __init__(self) -> None:
        self.remaining = ELEMENTS_PER_PIECE


def _list_in_pieces(values: list[Any], mapping: StructMapping, name_map: NameMap, piece: _Piece) -> Iterator[None]:
    """Maps the elements of a list, and drops those that name something of another instance: one by one, since freeing
    all at once may take long.
    """
    kept_count = 0
    for index, value in enumerate(values):
        values[index] = None
        inner_count = _inner_count(value, mapping)
        if inner_count > ELEMENTS_PER_PIECE:
            is_own = yield from _struct_in_pieces(value, mapping, name_map, piece)
        else:
            is_own = mapping.apply(value, name_map)
        if is_own:
            values[kept_count] = value
            kept_count += 1
        piece.remaining -= 1 + inner_count
        if piece.remaining <= 0:
            piece.remaining = ELEMENTS_PER_PIECE
            yield
    del values[kept_count:]


def _struct_in_pieces(
    message: Any, mapping: StructMapping, name_map: NameMap, piece: _Piece
) -> Generator[None, None, bool]:
    """Maps a struct like `StructMapping.apply`, its long lists in pieces."""
    lists = tuple(field for field in mapping.fields if field.inner is not None and field.is_list)
    other_fields = tuple(field for field in mapping.fields if field not in lists)
    if not StructMapping(other_fields, mapping.node_field, mapping.has_address).apply(message, name_map):
        return False
    for field in lists:
        assert field.inner is not None, "a list of structs"
        values = getattr(message, field.name)
        if values is not None:
            yield from _list_in_pieces(values, field.inner, name_map, piece)
    return True


def _inner_count(value: Any, mapping: StructMapping) -> int:
    lists = (getattr(value, field.name) for field in mapping.fields if field.is_list)
    return sum(len(elements) for elements in lists if elements)


@cache
def mapping_of(api_key: int, direction: Direction, version: int) -> MessageMapping:
    """Returns the mapping of a message. Raises UndeclaredField."""
    root = _struct_mapping(message_class(api_key, direction), version) or StructMapping(())
    lists = tuple(field for field in root.fields if field.inner is not None and field.is_list)
    other_fields = tuple(field for field in root.fields if field not in lists)
    return MessageMapping(lists, StructMapping(other_fields, root.node_field, root.has_address))


def _struct_mapping(cls: type[Any], version: int) -> StructMapping | None:
    """Returns the mapping of a class; None if nothing in it changes."""
    fields: list[FieldMapping] = []
    node_field, has_address = None, False
    for slot in slots_of(cls, version):
        if not slot.is_present:
            continue
        is_list = slot.spec.kind == "array"
        element: FieldSpec = slot.spec.inner if is_list else slot.spec
        if element.kind == "nested":
            inner = _struct_mapping(element.inner, version)
            if inner is not None:
                fields.append(FieldMapping(slot.name, Names.NONE, is_list, inner))
            continue
        names = _declared_names(cls, slot.name, element)
        if names in (Names.HOST, Names.PORT):
            has_address = True
            continue
        if names is Names.NODE and not is_list:
            node_field = slot.name
        if names not in _UNCHANGED_KINDS:
            fields.append(FieldMapping(slot.name, names, is_list))
    if has_address and node_field is None:
        raise UndeclaredField(f"{cls.__name__} has an address of no declared node")
    return StructMapping(tuple(fields), node_field, has_address) if fields or has_address else None


def _declared_names(cls: type[Any], field: str, spec: FieldSpec) -> Names:
    """Returns the declared kind of a field. Raises UndeclaredField."""
    if spec.names is None:
        if may_name(field, spec):
            raise UndeclaredField(f"{cls.__name__}.{field} does not declare what it names")
        return Names.NONE
    if spec.names in _UNMAPPED_KINDS:
        raise UndeclaredField(f"{cls.__name__}.{field} names a {spec.names.value}, which is not mapped")
    return spec.names


def may_name(field: str, spec: FieldSpec) -> bool:
    """True if a field of this name and kind has to declare what it names."""
    return spec.kind in NAMING_KINDS or (spec.kind == "int32" and _NODE_FIELD.search(field) is not None)
