"""Filters of messages by text, regular expression, header and path. Pure.

A message must match all filters. They search only what the reader may see (`instances.messages.rendering`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from instances.messages.interfaces import Record
from instances.messages.patterns import Pattern, WrongPattern
from instances.messages.rendering import Renderer
from instances.messages.value_filter import ValueFilter, WrongFilter

# Characters between name and value of a header in the searched text `name: value`, which are not stored.
_HEADER_SEPARATORS: Final = re.compile(rb"[: ]")


class UnusableFilter(ValueError):
    """The filter called `name` has a wrong syntax. The message is for its author."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterTexts:
    """Texts of filters under the names of the API; empty ones filter nothing."""

    contains: str = ""
    key_contains: str = ""
    header_contains: str = ""
    matches: str = ""
    key_matches: str = ""
    jq: str = ""

    def __bool__(self) -> bool:
        return bool(self.non_empty)

    @property
    def non_empty(self) -> dict[str, str]:
        return {name: text for name in FILTER_NAMES if (text := getattr(self, name))}

    @property
    def is_costly(self) -> bool:
        """True if matching one message may take milliseconds."""
        return bool(self.matches or self.key_matches or self.jq)


FILTER_NAMES = tuple(field.name for field in fields(FilterTexts))


def texts_from(values: Any) -> FilterTexts:
    """Returns the filters in the validated values of a query or a form."""
    return FilterTexts(**{name: values.get(name) or "" for name in FILTER_NAMES})


class RecordFilter:
    """Parsed filters. Raises `UnusableFilter`."""

    def __init__(self, texts: FilterTexts) -> None:
        self._contains, self._key_contains = texts.contains.encode(), texts.key_contains.encode()
        self._header_contains = texts.header_contains.encode()
        self._matches = _pattern("matches", texts.matches)
        self._key_matches = _pattern("key_matches", texts.key_matches)
        try:
            self._value_filter = ValueFilter(texts.jq) if texts.jq else None
        except WrongFilter as error:
            raise UnusableFilter("jq", error.args[0]) from None

    def literals(self, *, is_decoded: bool) -> Sequence[Sequence[bytes]]:
        """Returns lists of alternatives: every record that matches for a reader without masks has one text of each list
        in its key, in its value, or in the name or value of a header.

        `is_decoded`: schemas decode the contents, so the filter by path does not search stored bytes and has no texts.
        """
        patterns = [pattern.literal for pattern in (self._matches, self._key_matches) if pattern is not None]
        header = max(_HEADER_SEPARATORS.split(self._header_contains), key=len)
        texts = [(literal,) for literal in (self._contains, self._key_contains, header, *patterns) if literal]
        return [*texts, *(() if self._value_filter is None or is_decoded else self._value_filter.literals)]

    def accepts(self, renderer: Renderer, record: Record) -> bool:
        """True if all filters match; cheap ones are evaluated first."""
        return (
            (not self._header_contains or any(self._header_contains in line for line in renderer.header_lines(record)))
            and self._has_texts(renderer, record)
            and self._has_patterns(renderer, record)
            and self._has_fields(renderer, record)
        )

    def _has_texts(self, renderer: Renderer, record: Record) -> bool:
        if not self._contains and not self._key_contains:
            return True
        key = renderer.searched_key(record)
        return self._key_contains in key and (
            self._contains in key or self._contains in renderer.searched_value(record)
        )  # fmt: skip

    def _has_patterns(self, renderer: Renderer, record: Record) -> bool:
        if self._key_matches is not None and not self._key_matches.is_in(renderer.searched_key(record)):
            return False
        return self._matches is None or (
            self._matches.is_in(renderer.searched_key(record)) or self._matches.is_in(renderer.searched_value(record))
        )

    def _has_fields(self, renderer: Renderer, record: Record) -> bool:
        if self._value_filter is None:
            return True
        variables = renderer.variables(record) if self._value_filter.has_variables else {}
        return self._value_filter.matches(renderer.filtered_value(record), variables)


def check(name: str, text: str) -> None:
    """Raises `UnusableFilter` if `text` is wrong as the filter `name`."""
    RecordFilter(FilterTexts(**{name: text}))


def _pattern(name: str, text: str) -> Pattern | None:
    try:
        return Pattern(text) if text else None
    except WrongPattern as error:
        raise UnusableFilter(name, error.args[0]) from None
