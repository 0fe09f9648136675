"""Bounded work of decoding one key or value. Pure."""

from __future__ import annotations

from typing import Final

from instances.messages.schemas import limits

TOO_LARGE, DAMAGED, NO_SCHEMA = "too_large", "damaged", "no_schema"
PROBLEMS: Final = (TOO_LARGE, DAMAGED, NO_SCHEMA)


class Undecodable(ValueError):
    """The bytes are not shown by a schema; `problem` is one of `PROBLEMS`. It never has contents of a message."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class WrongSchema(ValueError):
    """The text is no schema. The message is for its writer."""


class DecodeBudget:
    """Values and characters that decoding has produced. Raises `Undecodable(TOO_LARGE)` beyond the limits."""

    def __init__(self, values_max: int = limits.DECODED_VALUES_MAX, chars_max: int = limits.DECODED_CHARS_MAX) -> None:
        self._values_left, self._chars_left = values_max, chars_max

    def spend(self, chars: int, depth: int) -> None:
        """Counts one value with the characters that it adds, at its depth."""
        self._values_left -= 1
        self._chars_left -= chars
        if self._values_left < 0 or self._chars_left < 0 or depth > limits.DECODED_DEPTH_MAX:
            raise Undecodable(TOO_LARGE)
