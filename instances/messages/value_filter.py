"""Filter of messages by their JSON value: a part of jq whose time and memory are bounded. Pure.

    .order.total > 100 and .state == "paid"
    .items[] | select(.sku | startswith("A-")) | .count >= 2
    $key == "o-1" or ($headers.trace | test("^7f"))

There are paths, literals, comparisons, `and`, `or`, `not`, `select`, `length`, `has`, `contains`, `startswith`,
`endswith` and `test` (RE2). There are no definitions, no recursion, no arithmetic, and no output is longer than
the message's value: a program of a few hundred characters runs at most `STEPS_MAX` steps for each message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext_noop

from instances.messages import filter_literals, value_paths
from instances.messages.exact_json import ExactNumber, Members
from instances.messages.filter_literals import NO_REQUIREMENTS, Requirements
from instances.messages.patterns import WORK_MAX, Pattern, WrongPattern
from instances.messages.value_paths import EACH, Path
from tenants.errors import Message

PROGRAM_CHARS_MAX: Final = 500
DEPTH_MAX: Final = 20
STEPS_MAX: Final = 20_000
# Characters of a text, or members of an object, that count as one step.
SIZE_PER_STEP: Final = 64
NUMBER_CHARS_MAX: Final = 400
# Work of a regular expression that counts as one step; all steps of a message are the work of two searches.
WORK_PER_STEP: Final = 2 * WORK_MAX // STEPS_MAX
KEY, HEADERS, PARTITION, OFFSET, TIMESTAMP = "key", "headers", "partition", "offset", "timestamp"
VARIABLES: Final = (KEY, HEADERS, PARTITION, OFFSET, TIMESTAMP)
_TOKEN = re.compile(
    rf"\s*(?:(?P<string>{value_paths.STRING})|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    rf"|(?P<word>{value_paths.NAME})|(?P<symbol>==|!=|<=|>=|[<>|()$]))"
)
_SPACE = re.compile(r"\s*")
_LITERALS: Final = {"true": True, "false": False, "null": None}
_COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
_TEXT_TESTS: Final = ("contains", "startswith", "endswith", "test")


class WrongFilter(ValueError):
    """The text is not a filter. The message is for its author."""


class TooManySteps(Exception):
    """The evaluation for one message takes more than `STEPS_MAX` steps."""


@dataclass(slots=True)
class _Evaluation:
    """One evaluation of a filter: its variables, and the number of steps that it may still take."""

    variables: Mapping[str, Any]
    steps_left: int = STEPS_MAX

    def step(self, value: Any = None) -> None:
        """Counts one step, and more for a long value that is searched."""
        self.steps_left -= 1 + (len(value) // SIZE_PER_STEP if isinstance(value, str | list) else 0)
        if self.steps_left < 0:
            raise TooManySteps


# Outputs of an expression for one input, as in jq: none, one or several.
Expression = Callable[[_Evaluation, Any], Iterator[Any]]


class _Parsed(NamedTuple):
    """An expression, and the texts that a true output requires in the value."""

    run: Expression
    requirements: Requirements = NO_REQUIREMENTS


class ValueFilter:
    """A parsed filter; without `has_variables` it depends on the value alone. Raises `WrongFilter`."""

    def __init__(self, text: str) -> None:
        if len(text) > PROGRAM_CHARS_MAX:
            raise WrongFilter(Message(gettext_noop("A filter has at most %(n)s characters."), n=PROGRAM_CHARS_MAX))
        parser = _Parser(text)
        self._expression, requirements = parser.parse()
        # Every matching message that no schema decodes has a text of each of these alternatives in its key or value.
        self.literals: Sequence[Sequence[bytes]] = filter_literals.encoded(requirements.for_true)
        self.has_variables = parser.has_variables

    def matches(self, value: Any, variables: Mapping[str, Any]) -> bool:
        """True if any output is neither false nor null. A message that takes too many steps does not match."""
        evaluation = _Evaluation(variables)
        try:
            return any(_is_true(result) for result in self._expression(evaluation, value))
        except (TooManySteps, RecursionError):
            return False


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.has_variables = False

    def parse(self) -> _Parsed:
        result = self._pipe()
        if self._remaining_text():
            raise self._error()
        return result

    def _remaining_text(self) -> str:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at :]

    def _error(self) -> WrongFilter:
        remaining = self._remaining_text()
        if not remaining:
            return WrongFilter(Message(gettext_noop("The filter ends too early.")))
        sentence = gettext_noop('Not understood from character %(at)s: "%(rest)s"')
        return WrongFilter(Message(sentence, at=self._at + 1, rest=remaining[:20]))

    def _take(self, kind: str, *words: str) -> str | None:
        """Consumes and returns the next token if it is of this kind and one of `words`, or any without words; else
        None.
        """
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[kind] is None or (words and match[kind] not in words):
            return None
        self._at = match.end()
        return str(match[kind])

    def _expect(self, symbol: str) -> None:
        if self._take("symbol", symbol) is None:
            raise self._error()

    def _pipe(self) -> _Parsed:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise WrongFilter(Message(gettext_noop("A filter is nested at most %(n)s times."), n=DEPTH_MAX))
        result = self._or()
        while self._take("symbol", "|"):
            second = self._or()
            result = _Parsed(
                _piped(result.run, second.run), filter_literals.piped(result.requirements, second.requirements)
            )
        self._depth -= 1
        return result

    def _or(self) -> _Parsed:
        result = self._and()
        while self._take("word", "or"):
            second = self._and()
            result = _Parsed(
                _either(result.run, second.run), filter_literals.either(result.requirements, second.requirements)
            )
        return result

    def _and(self) -> _Parsed:
        result = self._comparison()
        while self._take("word", "and"):
            second = self._comparison()
            result = _Parsed(
                _both(result.run, second.run), filter_literals.both(result.requirements, second.requirements)
            )
        return result

    def _comparison(self) -> _Parsed:
        left = self._term()
        sign = self._take("symbol", *_COMPARISONS)
        if sign is None:
            return left
        right = self._term()
        return _Parsed(
            _compared(left.run, sign, right.run), filter_literals.compared(left.requirements, sign, right.requirements)
        )

    def _term(self) -> _Parsed:
        if self._remaining_text().startswith("."):
            path = self._path()
            return _Parsed(_at_path(path), filter_literals.of_path(path))
        if self._take("symbol", "("):
            inner = self._pipe()
            self._expect(")")
            return inner
        if self._take("symbol", "$"):
            return self._variable()
        if (string := self._take("string")) is not None:
            text = value_paths.unquote(string)
            return _Parsed(_literal(text), filter_literals.of_constant(text))
        if (number := self._take("number")) is not None:
            if len(number) > NUMBER_CHARS_MAX:
                raise self._error()
            exact = ExactNumber(number)
            return _Parsed(_literal(exact), filter_literals.of_constant(exact))
        return self._call()

    def _path(self) -> Path:
        try:
            path, self._at = value_paths.parse_at(self._text, self._at)
        except value_paths.WrongPath as error:
            raise WrongFilter(error.args[0]) from None
        return path

    def _variable(self) -> _Parsed:
        name = self._take("word")
        self.has_variables = True
        if name not in VARIABLES:
            names = ", ".join(f"${variable}" for variable in VARIABLES)
            raise WrongFilter(Message(gettext_noop("There are the variables %(names)s."), names=names))
        path = self._path() if self._text.startswith((".", "["), self._at) else Path()
        # Headers that are no text are shown as hex, and the other variables are numbers.
        requirements = filter_literals.of_path(path, is_variable=True) if name == KEY else NO_REQUIREMENTS
        return _Parsed(_variable(name, path), requirements)

    def _call(self) -> _Parsed:
        name = self._take("word")
        if name in _LITERALS:
            return _Parsed(_literal(_LITERALS[name]), filter_literals.of_constant(_LITERALS[name]))
        if name == "not":
            return _Parsed(_mapped(lambda value: not _is_true(value)))
        if name == "length":
            return _Parsed(_mapped(_length))
        if name == "select":
            self._expect("(")
            inner = self._pipe()
            self._expect(")")
            return _Parsed(_selected(inner.run), filter_literals.of_select(inner.requirements))
        if name == "has" or name in _TEXT_TESTS:
            self._expect("(")
            quoted = self._take("string")
            if quoted is None:
                raise self._error()
            self._expect(")")
            text = value_paths.unquote(quoted)
            if name != "test":
                return _Parsed(_mapped(_test(name, text)), filter_literals.of_test(text))
            pattern = _pattern(text)
            return _Parsed(_matched(pattern), filter_literals.of_test(pattern.literal.decode()))
        if name is not None:
            self._at -= len(name)
        raise self._error()


def _literal(value: Any) -> Expression:
    def run(evaluation: _Evaluation, _value: Any) -> Iterator[Any]:
        evaluation.step()
        yield value

    return run


def _at_path(path: Path) -> Expression:
    return lambda evaluation, value: _walk(evaluation, value, path, 0)


def _variable(name: str, path: Path) -> Expression:
    return lambda evaluation, _value: _walk(evaluation, evaluation.variables.get(name), path, 0)


def _walk(evaluation: _Evaluation, value: Any, path: Path, at: int) -> Iterator[Any]:
    """Yields the values at the steps of a path from number `at` on: null for a missing member, nothing if the value
    has another shape than the path.
    """
    evaluation.step()
    if at == len(path.steps):
        yield value
        return
    step = path.steps[at]
    if step is EACH:
        if isinstance(value, Members):
            for _, inner in value:
                yield from _walk(evaluation, inner, path, at + 1)
        elif isinstance(value, list):
            for inner in value:
                yield from _walk(evaluation, inner, path, at + 1)
    elif isinstance(step, str):
        if value is None or isinstance(value, Members):
            evaluation.step(value)
            yield from _walk(evaluation, _member(value, step), path, at + 1)
    elif value is None or (isinstance(value, list) and not isinstance(value, Members)):
        inner = value[step] if value is not None and step < len(value) else None
        yield from _walk(evaluation, inner, path, at + 1)


def _member(members: Members | None, name: str) -> Any:
    """Returns the last member of this name, the one that parsers of JSON use."""
    return next((inner for member, inner in reversed(members or ()) if member == name), None)


def _piped(first: Expression, second: Expression) -> Expression:
    def run(evaluation: _Evaluation, value: Any) -> Iterator[Any]:
        for result in first(evaluation, value):
            evaluation.step()
            yield from second(evaluation, result)

    return run


def _either(first: Expression, second: Expression) -> Expression:
    def run(evaluation: _Evaluation, value: Any) -> Iterator[Any]:
        for left in first(evaluation, value):
            evaluation.step()
            if _is_true(left):
                yield True
            else:
                yield from (_is_true(right) for right in second(evaluation, value))

    return run


def _both(first: Expression, second: Expression) -> Expression:
    def run(evaluation: _Evaluation, value: Any) -> Iterator[Any]:
        for left in first(evaluation, value):
            evaluation.step()
            if not _is_true(left):
                yield False
            else:
                yield from (_is_true(right) for right in second(evaluation, value))

    return run


def _compared(first: Expression, sign: str, second: Expression) -> Expression:
    def run(evaluation: _Evaluation, value: Any) -> Iterator[Any]:
        for left in first(evaluation, value):
            for right in second(evaluation, value):
                evaluation.step(left)
                yield _compare(left, sign, right)

    return run


def _selected(condition: Expression) -> Expression:
    def run(evaluation: _Evaluation, value: Any) -> Iterator[Any]:
        for result in condition(evaluation, value):
            evaluation.step()
            if _is_true(result):
                yield value

    return run


def _mapped(function: Callable[[Any], Any]) -> Expression:
    def run(evaluation: _Evaluation, value: Any) -> Iterator[Any]:
        evaluation.step(value)
        yield function(value)

    return run


def _pattern(text: str) -> Pattern:
    try:
        return Pattern(text)
    except WrongPattern as error:
        raise WrongFilter(error.args[0]) from None


def _matched(pattern: Pattern) -> Expression:
    """Returns the expression that is true for a text in which the pattern matches."""

    def run(evaluation: _Evaluation, value: Any) -> Iterator[Any]:
        evaluation.step(value)
        if not _is_text(value):
            yield False
            return
        raw = value.encode(errors="surrogatepass")
        evaluation.steps_left -= pattern.work(len(raw)) // WORK_PER_STEP
        if evaluation.steps_left < 0:
            raise TooManySteps
        yield pattern.is_in(raw)

    return run


def _is_true(value: Any) -> bool:
    return value is not None and value is not False


def _compare(left: Any, sign: str, right: Any) -> bool:
    """Compares numbers with numbers and texts with texts. Lists and objects equal nothing."""
    numbers = (_number(left), _number(right))
    if numbers[0] is not None and numbers[1] is not None:
        left, right = numbers
    elif type(left) is not type(right) or isinstance(left, list):
        return sign == "!="
    if sign in ("==", "!="):
        return bool(left == right) is (sign == "==")
    if isinstance(left, Decimal | str) and isinstance(right, Decimal | str) and not isinstance(left, ExactNumber):
        return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign])  # type: ignore[operator]
    return False


def _number(value: Any) -> Decimal | None:
    if not isinstance(value, ExactNumber) or len(value) > NUMBER_CHARS_MAX:
        return None
    try:
        return Decimal(value)
    except InvalidOperation:
        return None


def _length(value: Any) -> Any:
    if value is None:
        return ExactNumber("0")
    if isinstance(value, ExactNumber | bool) or not isinstance(value, str | list):
        return None
    return ExactNumber(str(len(value)))


def _test(name: str, text: str) -> Callable[[Any], Any]:
    if name == "has":
        return lambda value: isinstance(value, Members) and any(member == text for member, _ in value)
    if name == "contains":
        return lambda value: _is_text(value) and text in value
    if name == "startswith":
        return lambda value: _is_text(value) and value.startswith(text)
    return lambda value: _is_text(value) and value.endswith(text)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, ExactNumber)
