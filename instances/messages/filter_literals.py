"""Texts that a value must have for a filter by path to match, so that messages without them are never parsed. Pure.

JSON writes a text as it is or with an escape, which is an alternative of each text. Only what is certain for every
value is derived: `.a == "x"` needs both texts, `.a != "x"` and `.a == null` match values that have neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instances.messages.value_paths import EACH, Path, Step

# Texts of which a value must have at least one.
Alternatives = frozenset[str]
Needed = frozenset[Alternatives]

NOTHING: Final[Needed] = frozenset()
ALTERNATIVES_MAX: Final = 8
# Characters that JSON may write as a backslash and a letter; all others have one escape, with their number.
_ESCAPED_BY_LETTERS: Final = frozenset('"\\/\b\f\n\r\t')
_ESCAPE, _ESCAPE_BY_NUMBER = b"\\", b"\\u"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Texts that the value has if an expression yields something that is true (`true`), that is not null (`known`), or
    anything (`any`).

    `is_part`: its outputs are parts of the value that it is given, or that value. `wants_true`: of null and of false it
    yields nothing that is true. `constant` is a literal's value, `has_constant` tells it from null.
    """

    true: Needed = NOTHING
    known: Needed = NOTHING
    any: Needed = NOTHING
    is_part: bool = False
    wants_true: bool = False
    has_constant: bool = False
    constant: Any = None


UNKNOWN: Final = Needs()


def of_path(path: Path, *, is_variable: bool = False) -> Needs:
    """Returns the needs of a path in the value that it is given, or in a variable.

    A missing member yields null, and each of the elements of null nothing.
    """
    ends = [at for at, step in enumerate(path.steps) if step is EACH]
    needed = _names(path.steps)
    return Needs(
        true=needed, known=needed, any=_names(path.steps[: max(ends, default=0)]), is_part=True,
        wants_true=not is_variable,
    )  # fmt: skip


def _names(steps: Iterable[Step]) -> Needed:
    return frozenset(frozenset([step]) for step in steps if isinstance(step, str) and step)


def of_constant(value: Any) -> Needs:
    return Needs(has_constant=True, constant=value)


def of_test(text: str) -> Needs:
    """Returns the needs of a test that is true only of a value with this text."""
    return Needs(true=frozenset([frozenset([text])]) if text else NOTHING, wants_true=True)


def of_select(condition: Needs) -> Needs:
    return Needs(true=condition.true, known=condition.true, any=condition.true, is_part=True, wants_true=True)


def piped(first: Needs, second: Needs) -> Needs:
    seen = second if first.is_part else UNKNOWN
    return Needs(
        true=first.any | seen.true | (first.true if second.wants_true else NOTHING),
        known=first.any | seen.known,
        any=first.any | seen.any,
        is_part=first.is_part and second.is_part,
        wants_true=first.wants_true and second.wants_true,
    )


def both(first: Needs, second: Needs) -> Needs:
    return Needs(true=first.true | second.true, known=first.any, any=first.any)


def either(first: Needs, second: Needs) -> Needs:
    """Returns the needs of `or`: one text of the one or one of the other, of those with the longest texts."""
    true = NOTHING
    if first.true and second.true:
        alternatives = _longest(first.true) | _longest(second.true)
        true = frozenset([alternatives]) if len(alternatives) <= ALTERNATIVES_MAX else NOTHING
    return Needs(true=true, known=first.any, any=first.any)


def compared(left: Needs, sign: str, right: Needs) -> Needs:
    some = left.any | right.any
    true = some
    if sign in ("<", "<=", ">", ">="):
        true |= left.known | right.known
    elif sign == "==":
        for one, other in ((left, right), (right, left)):
            if one.has_constant and one.constant is not None:
                true |= other.known
                if other.is_part and type(one.constant) is str and one.constant:
                    true |= frozenset([frozenset([one.constant])])
    return Needs(true=true, known=some, any=some)


def encoded(needed: Needed) -> Sequence[Sequence[bytes]]:
    """Returns the texts as they are stored, each with the escape by which JSON may write it."""
    result = []
    for alternatives in sorted(needed, key=sorted):
        has_letters = any(not _ESCAPED_BY_LETTERS.isdisjoint(text) for text in alternatives)
        escape = _ESCAPE if has_letters else _ESCAPE_BY_NUMBER
        try:
            result.append((*(text.encode() for text in sorted(alternatives)), escape))
        except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
            continue
    return result


def _longest(needed: Needed) -> Alternatives:
    """Returns the alternatives whose shortest text is the longest."""
    return max(needed, key=lambda alternatives: (min(map(len, alternatives)), sorted(alternatives)))
