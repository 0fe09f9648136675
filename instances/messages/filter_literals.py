"""Texts that a value must have for a filter by path to match, so that messages without them are never parsed. Pure.

JSON writes a text as it is or with an escape, so an escape is an alternative to each text. Only requirements that hold
for every matching value are derived: `.a == "x"` needs both texts; `.a != "x"` and `.a == null` match values that have
neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instances.messages.value_paths import EACH, Path, Step

# Texts of which a value must have at least one.
Alternatives = frozenset[str]
# A value must have a text of each of these alternatives.
RequiredTexts = frozenset[Alternatives]

NO_TEXTS: Final[RequiredTexts] = frozenset()
ALTERNATIVES_MAX: Final = 8
# Characters that JSON may write as a backslash and a letter; all others have one escape, with their number.
_ESCAPED_BY_LETTERS: Final = frozenset('"\\/\b\f\n\r\t')
_ESCAPE, _ESCAPE_BY_NUMBER = b"\\", b"\\u"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """Texts that the input of an expression must have for an output that is true (`for_true`), that is not null
    (`for_not_null`), or for any output at all (`for_any`).

    `yields_part`: outputs are parts of the input, or the input. `needs_true_input`: for the inputs null and false, no
    output is true. `constant` is the value of a literal; `has_constant` distinguishes the literal null from none.
    """

    for_true: RequiredTexts = NO_TEXTS
    for_not_null: RequiredTexts = NO_TEXTS
    for_any: RequiredTexts = NO_TEXTS
    yields_part: bool = False
    needs_true_input: bool = False
    has_constant: bool = False
    constant: Any = None


NO_REQUIREMENTS: Final = Requirements()


def of_path(path: Path, *, is_variable: bool = False) -> Requirements:
    """Returns the requirements of a path into the input, or into a variable.

    A path to a missing member yields null; the elements of null (`[]`) are no outputs, so the names before the last
    `[]` are required for any output.
    """
    each_positions = [position for position, step in enumerate(path.steps) if step is EACH]
    names = _names(path.steps)
    return Requirements(
        for_true=names, for_not_null=names, for_any=_names(path.steps[: max(each_positions, default=0)]),
        yields_part=True, needs_true_input=not is_variable,
    )  # fmt: skip


def _names(steps: Iterable[Step]) -> RequiredTexts:
    return frozenset(frozenset([step]) for step in steps if isinstance(step, str) and step)


def of_constant(value: Any) -> Requirements:
    return Requirements(has_constant=True, constant=value)


def of_test(text: str) -> Requirements:
    """Returns the requirements of a test that is true only for a value with this text."""
    return Requirements(for_true=frozenset([frozenset([text])]) if text else NO_TEXTS, needs_true_input=True)


def of_select(condition: Requirements) -> Requirements:
    return Requirements(
        for_true=condition.for_true,
        for_not_null=condition.for_true,
        for_any=condition.for_true,
        yields_part=True,
        needs_true_input=True,
    )


def piped(first: Requirements, second: Requirements) -> Requirements:
    second_of_input = second if first.yields_part else NO_REQUIREMENTS
    return Requirements(
        for_true=first.for_any | second_of_input.for_true | (first.for_true if second.needs_true_input else NO_TEXTS),
        for_not_null=first.for_any | second_of_input.for_not_null,
        for_any=first.for_any | second_of_input.for_any,
        yields_part=first.yields_part and second.yields_part,
        needs_true_input=first.needs_true_input and second.needs_true_input,
    )


def both(first: Requirements, second: Requirements) -> Requirements:
    return Requirements(for_true=first.for_true | second.for_true, for_not_null=first.for_any, for_any=first.for_any)


def either(first: Requirements, second: Requirements) -> Requirements:
    """Returns the requirements of `or`: for a true output, a text of either side's alternatives with the longest
    texts.
    """
    for_true = NO_TEXTS
    if first.for_true and second.for_true:
        alternatives = _longest(first.for_true) | _longest(second.for_true)
        for_true = frozenset([alternatives]) if len(alternatives) <= ALTERNATIVES_MAX else NO_TEXTS
    return Requirements(for_true=for_true, for_not_null=first.for_any, for_any=first.for_any)


def compared(left: Requirements, sign: str, right: Requirements) -> Requirements:
    for_any = left.for_any | right.for_any
    for_true = for_any
    if sign in ("<", "<=", ">", ">="):
        for_true |= left.for_not_null | right.for_not_null
    elif sign == "==":
        for side, other_side in ((left, right), (right, left)):
            if side.has_constant and side.constant is not None:
                for_true |= other_side.for_not_null
                if other_side.yields_part and type(side.constant) is str and side.constant:
                    for_true |= frozenset([frozenset([side.constant])])
    return Requirements(for_true=for_true, for_not_null=for_any, for_any=for_any)


def encoded(required: RequiredTexts) -> Sequence[Sequence[bytes]]:
    """Returns the alternatives as stored bytes, each with the escape by which JSON may write its texts."""
    result = []
    for alternatives in sorted(required, key=sorted):
        has_letters = any(not _ESCAPED_BY_LETTERS.isdisjoint(text) for text in alternatives)
        escape = _ESCAPE if has_letters else _ESCAPE_BY_NUMBER
        try:
            result.append((*(text.encode() for text in sorted(alternatives)), escape))
        except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
            continue
    return result


def _longest(required: RequiredTexts) -> Alternatives:
    """Returns the alternatives whose shortest text is the longest."""
    return max(required, key=lambda alternatives: (min(map(len, alternatives)), sorted(alternatives)))
