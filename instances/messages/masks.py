"""Fields of messages that are hidden from roles without `messages:unmask`. Pure.

A path that meets another shape than it names hides what it meets: a text where an object is expected could contain the
field in a form that no path finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instances.messages.exact_json import Members
from instances.messages.value_paths import EACH, Path, Step

KEY, VALUE, HEADER = "key", "value", "header"
PARTS: Final = (KEY, VALUE, HEADER)
HIDDEN: Final = "•••"


@dataclass(frozen=True, slots=True)
class Mask:
    """One hidden field: a path in the key or in the value, or the name of a header (`.name`)."""

    part: str
    path: Path


class Masks:
    """Masks of one topic, for one reader."""

    def __init__(self, masks: Iterable[Mask] = ()) -> None:
        self._paths: dict[str, list[tuple[Step, ...]]] = {}
        for mask in masks:
            self._paths.setdefault(mask.part, []).append(mask.path.steps)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def covers(self, part: str) -> bool:
        """True if something of the part is hidden."""
        return part in self._paths

    def hides_header(self, name: str) -> bool:
        return any(steps in ((), (name,)) for steps in self._paths.get(HEADER, ()))

    def apply(self, part: str, value: Any) -> Any:
        """Returns a parsed value with the fields hidden. Raises `RecursionError` for one that is nested too deeply."""
        return _hidden(value, self._paths.get(part, ()))


def _hidden(value: Any, paths: Sequence[tuple[Step, ...]]) -> Any:
    if not paths or value is None:
        return value
    if () in paths:
        return HIDDEN
    if isinstance(value, Members):
        return Members((name, _hidden(inner, _below(paths, name))) for name, inner in value)
    if isinstance(value, list):
        return [_hidden(inner, _inside(paths, index)) for index, inner in enumerate(value)]
    return HIDDEN


def _below(paths: Sequence[tuple[Step, ...]], name: str) -> list[tuple[Step, ...]]:
    """Rests of the paths that lead through a member."""
    return [steps[1:] for steps in paths if steps[0] is EACH or steps[0] == name]


def _inside(paths: Sequence[tuple[Step, ...]], index: int) -> list[tuple[Step, ...]]:
    """Rests of the paths that lead through an element; a name counts for every element of a list."""
    return [
        steps if isinstance(steps[0], str) else steps[1:]
        for steps in paths
        if steps[0] is EACH or steps[0] == index or isinstance(steps[0], str)
    ]  # fmt: skip
