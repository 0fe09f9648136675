"""JSON text as a tree that a page can fold, with the digits of numbers and repeated members preserved. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

NODES_MAX: Final = 500
DEPTH_MAX: Final = 12
TEXT_CHARS_MAX: Final = 65_536
OBJECT, ARRAY, STRING, NUMBER, KEYWORD = "object", "array", "string", "number", "word"


class _Number(str):
    """A number as the text has it, digit by digit."""


class _Pairs(list[tuple[str, Any]]):
    """Members of an object in order, repeated names included."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value. `name` is its member name, None in an array; `text` is the JSON of a scalar, else the number of
    `children`.
    """

    name: str | None
    kind: str
    text: str
    children: Sequence[Node] = ()


def tree(text: str) -> Node | None:
    """Returns the tree; None for a text that is not JSON or too large (`TEXT_CHARS_MAX`, `NODES_MAX`, `DEPTH_MAX`)."""
    if len(text) > TEXT_CHARS_MAX:
        return None
    try:
        value = json.loads(text, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return None
    nodes_left = [NODES_MAX]
    return _node(None, value, 0, nodes_left)


def _node(name: str | None, value: Any, depth: int, nodes_left: list[int]) -> Node | None:
    nodes_left[0] -= 1
    if nodes_left[0] < 0 or depth > DEPTH_MAX:
        return None
    if isinstance(value, _Pairs):
        members = [_node(key, inner, depth + 1, nodes_left) for key, inner in value]
        return _parent(name, OBJECT, members)
    if isinstance(value, list):
        return _parent(name, ARRAY, [_node(None, inner, depth + 1, nodes_left) for inner in value])
    if isinstance(value, _Number):
        return Node(name, NUMBER, str(value))
    kind = STRING if isinstance(value, str) else KEYWORD
    return Node(name, kind, json.dumps(value, ensure_ascii=False))


def _parent(name: str | None, kind: str, children: Sequence[Node | None]) -> Node | None:
    complete = [child for child in children if child is not None]
    return Node(name, kind, str(len(complete)), complete) if len(complete) == len(children) else None
