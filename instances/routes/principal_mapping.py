"""Mapping of certificates to names of users: Kafka's `ssl.principal.mapping.rules` (KIP-371), applied to their
distinguished names.

A tenant's rules run in every handshake, so they run in RE2, whose time is linear in the length of the name. Patterns
that need a backtracking engine are refused when rules are set. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import re2

from instances.routes.kinds import DEFAULT_MAPPING_RULES, MAPPING_RULES_CHARS_MAX

RULES_MAX: Final = 16
# Instructions of all compiled patterns of a route: the maximum number of steps of a search for each byte.
PROGRAM_SIZE_MAX: Final = 2_000
# Length of a subject's distinguished name, and of the user name that a rule derives from it.
DISTINGUISHED_NAME_CHARS_MAX: Final = 1_024
# Replaced matches of a pattern in one name; a pattern with ^ and $ matches once.
REPLACEMENTS_MAX: Final = 4
# Memory of one compiled pattern.
PATTERN_MEMORY_BYTES_MAX: Final = 128 * 1024

# Syntax of a rule, taken over from Kafka's SslPrincipalMapper.
_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re2.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re2.compile(_RULE)
_FLAGS: Final = re2.compile(r"\(\?[a-z-]*U")
_SHOWN_CHARS_MAX: Final = 60


class RulesRefused(ValueError):
    """The rules cannot be used; the text says which one and why."""


class NoName(Exception):
    """No rule derives a user name from a distinguished name."""


class _Rule:
    """A rule `RULE:pattern/replacement/case`."""

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        """Raises `RulesRefused`."""
        _refuse_syntax_unlike_java(pattern)
        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES_MAX
        options.log_errors = False
        try:
            self._pattern: Any = re2.compile(pattern, options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            reason_text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise RulesRefused(
                f"the pattern is not understood: {reason_text[:_SHOWN_CHARS_MAX]}; look-around, back references and "
                "possessive quantifiers are not supported"
            ) from None
        self.program_size: int = self._pattern.programsize
        self._replacement = list(_replacement_parts(replacement, self._pattern.groups, self._pattern.groupindex))
        self._case = case

    def apply(self, name: str) -> str | None:
        """Returns the name after Java's `replaceAll`, or None if the pattern does not match the whole name."""
        if self._pattern.fullmatch(name) is None:
            return None
        pieces: list[str] = []
        end = length = 0
        for number, match in enumerate(self._pattern.finditer(name)):
            if number == REPLACEMENTS_MAX:
                raise NoName(f"a pattern is found more than {REPLACEMENTS_MAX} times in it; let it begin with ^")
            pieces.append(name[end : match.start()])
            for piece in self._replacement:
                pieces.append(piece if isinstance(piece, str) else match.group(piece) or "")
                length += len(pieces[-1])
                if length > DISTINGUISHED_NAME_CHARS_MAX:
                    raise NoName("a rule makes a name of it that is too long")
            end = match.end()
        result = "".join((*pieces, name[end:]))
        return result.lower() if self._case == "L" else result.upper() if self._case == "U" else result


class PrincipalMapping:
    """Mapping rules of one route. The first rule whose pattern matches the whole distinguished name determines the
    user name.
    """

    def __init__(self, text: str = DEFAULT_MAPPING_RULES) -> None:
        """Raises `RulesRefused`."""
        if len(text) > MAPPING_RULES_CHARS_MAX:
            raise RulesRefused(f"they have {len(text)} characters, {MAPPING_RULES_CHARS_MAX} at most")
        if not text.isprintable():
            raise RulesRefused("write them in one line, separated by commas")
        # None is Kafka's DEFAULT: the unchanged name.
        self._rules: list[_Rule | None] = []
        size = 0
        for number, rule_text in enumerate(filter(None, _split(text)), start=1):
            if number > RULES_MAX:
                raise RulesRefused(f"there are more than {RULES_MAX} rules")
            try:
                rule = _parse_rule(rule_text)
                size += 0 if rule is None else rule.program_size
            except RulesRefused as error:
                raise RulesRefused(f"rule {number} ({_excerpt(rule_text)}): {error}") from None
            if size > PROGRAM_SIZE_MAX:
                raise RulesRefused(f"rule {number} ({_excerpt(rule_text)}): the patterns are too large together")
            self._rules.append(rule)
        if not self._rules:
            raise RulesRefused("there is no rule; DEFAULT takes every name as it is")

    def user_of(self, distinguished_name: str) -> str:
        """Returns the user's name for a distinguished name. Raises `NoName`."""
        if len(distinguished_name) > DISTINGUISHED_NAME_CHARS_MAX:
            raise NoName(f"it has {len(distinguished_name)} characters, {DISTINGUISHED_NAME_CHARS_MAX} at most")
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoName("no rule matches it")


def _split(text: str) -> Iterator[str]:
    return (match.group(1) or "" for match in _SPLITTER.finditer(text.strip()))


def _parse_rule(rule_text: str) -> _Rule | None:
    match = _PARSER.match(rule_text)
    if match is None or match.end() != len(rule_text):
        unparsed = rule_text if match is None else rule_text[match.end() :]
        raise RulesRefused(
            f"{_excerpt(unparsed)} is not understood; a rule is DEFAULT or RULE:pattern/replacement/[LU]"
        )
    if match.group(1) is not None:
        return None
    return _Rule(match.group(2), match.group(4), match.group(6) or "")


def _excerpt(rule_text: str) -> str:
    return repr(rule_text if len(rule_text) <= _SHOWN_CHARS_MAX else f"{rule_text[:_SHOWN_CHARS_MAX]}…")


def _refuse_syntax_unlike_java(pattern: str) -> None:
    """Raises `RulesRefused` for syntax that RE2 accepts, and that Java refuses or interprets in another way."""
    in_class = False
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            if pattern[at + 1 : at + 2] == "C":
                raise RulesRefused(r"the pattern is not understood: \C")
            if pattern[at + 1 : at + 2] == "Q":  # up to \E, or to the end
                end = pattern.find(r"\E", at + 2)
                at = len(pattern) if end < 0 else end
            at += 2
            continue
        if in_class:
            if char == "[" or pattern.startswith("&&", at):
                raise RulesRefused(f"the pattern has {char!r} inside brackets; write a backslash before it")
            in_class = char != "]"
        elif char == "[":
            in_class = True
            # A closing bracket at the start of a class is one of its characters.
            at += 1 if pattern.startswith("[^", at) else 0
            at += 1 if pattern[at + 1 : at + 2] == "]" else 0
        elif _flags(pattern, at).endswith("U"):
            raise RulesRefused("the flag U is not supported")
        at += 1


def _flags(pattern: str, at: int) -> str:
    """Returns the flags of the group that begins at an index, up to the first U."""
    match = _FLAGS.match(pattern, at)
    return "" if match is None else match.group()


def _replacement_parts(text: str, group_count: int, group_by_name: dict[str, int]) -> Iterator[str | int]:
    """Yields the parts of a replacement, text and group numbers, as Java's Matcher reads them after Kafka has escaped
    references to missing groups.
    """
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            yield text[at + 1 : at + 2]
            at += 2
        elif char != "$":
            yield char
            at += 1
        elif text[at + 1 : at + 2] == "{":
            name, closing, _ = text[at + 2 :].partition("}")
            if not closing or name not in group_by_name:
                raise RulesRefused(f"the pattern has no group {name!r}")
            yield group_by_name[name]
            at += len(name) + 3
        else:
            digits = _digits(text[at + 1 :])
            if not digits:
                raise RulesRefused("a $ in the replacement is followed by no number; write \\$ for the character")
            if group_count and int(digits[0]) > group_count:
                yield f"${digits}"  # Kafka takes it literally
                at += 1 + len(digits)
                continue
            digit_count = _group_digit_count(digits, group_count)
            yield int(digits[:digit_count])
            at += 1 + digit_count


def _digits(text: str) -> str:
    end = 0
    while end < len(text) and text[end] in "0123456789":
        end += 1
    return text[:end]


def _group_digit_count(digits: str, group_count: int) -> int:
    """Returns the number of leading digits that are the number of a group: like Java, as many as possible."""
    if int(digits[0]) > group_count:
        raise RulesRefused(f"the pattern has no group {digits[0]}")
    digit_count = 1
    while digit_count < len(digits) and int(digits[: digit_count + 1]) <= group_count:
        digit_count += 1
    return digit_count
