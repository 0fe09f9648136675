"""Fields of messages that are hidden from roles without `messages:unmask`. Pure.

Where the value has another shape than a path expects, the whole part is hidden: a text in place of an object could
contain the field in a form that no path matches.
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
        """True if there is a mask for fields of the key, the value or the headers."""
        return part in self._paths

    def hides_header(self, name: str) -> bool:
        return any(steps in ((), (name,)) for steps in self._paths.get(HEADER, ()))

    def apply(self, part: str, value: Any) -> Any:
        """Returns a parsed value with the fields hidden. Raises `RecursionError` for one that is nested too deeply."""
        return _masked(value, self._paths.get(part, ()))


def _masked(value: Any, paths: Sequence[tuple[Step, ...]]) -> Any:
    if not paths or value is None:
        return value
    if () in paths:
        return HIDDEN
    if isinstance(value, Members):
        return Members((name, _masked(inner, _member_paths(paths, name))) for name, inner in value)
    if isinstance(value, list):
        return [_masked(inner, _element_paths(paths, index)) for index, inner in enumerate(value)]
    return HIDDEN


def _member_paths(paths: Sequence[tuple[Step, ...]], name: str) -> list[tuple[Step, ...]]:
    """Returns the remaining steps of the paths that lead through a member."""
    return [steps[1:] for steps in paths if steps[0] is EACH or steps[0] == name]


def _element_paths(paths: Sequence[tuple[Step, ...]], index: int) -> list[tuple[Step, ...]]:
    """Returns the remaining steps of the paths that lead through an element; a name applies to every element."""
    return [
        steps if isinstance(steps[0], str) else steps[1:]
        for steps in paths
        if steps[0] is EACH or steps[0] == index or isinstance(steps[0], str)
    ]  # fmt: skip
