"""A JSON text as a tree that folds, with every number, key and repetition as it was written. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

NODES_MAX: Final = 500
DEPTH_MAX: Final = 12
TEXT_CHARS_MAX: Final = 65_536
OBJECT, ARRAY, STRING, NUMBER, WORD = "object", "array", "string", "number", "word"


class _Number(str):
    """Digits as they are written."""


class _Pairs(list[tuple[str, Any]]):
    """Members of an object in order, repeated names included."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value: `name` is its member's, None in an array; `text` of what has no `children`, else their number."""

    name: str | None
    kind: str
    text: str
    children: Sequence[Node] = ()


def tree(text: str) -> Node | None:
    """Returns the tree, or None for what is no JSON, or too large to fold."""
    if len(text) > TEXT_CHARS_MAX:
        return None
    try:
        value = json.loads(text, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return None
    budget = [NODES_MAX]
    return _node(None, value, 0, budget)


def _node(name: str | None, value: Any, depth: int, budget: list[int]) -> Node | None:
    budget[0] -= 1
    if budget[0] < 0 or depth > DEPTH_MAX:
        return None
    if isinstance(value, _Pairs):
        members = [_node(key, inner, depth + 1, budget) for key, inner in value]
        return _parent(name, OBJECT, members)
    if isinstance(value, list):
        return _parent(name, ARRAY, [_node(None, inner, depth + 1, budget) for inner in value])
    if isinstance(value, _Number):
        return Node(name, NUMBER, str(value))
    kind = STRING if isinstance(value, str) else WORD
    return Node(name, kind, json.dumps(value, ensure_ascii=False))


def _parent(name: str | None, kind: str, children: Sequence[Node | None]) -> Node | None:
    known = [child for child in children if child is not None]
    return Node(name, kind, str(len(known)), known) if len(known) == len(children) else None
