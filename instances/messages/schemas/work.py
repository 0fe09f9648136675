"""Budget and errors of decoding one key or value. Pure."""

from __future__ import annotations

from typing import Final

from instances.messages.schemas import limits

TOO_LARGE, DAMAGED, NO_SCHEMA = "too_large", "damaged", "no_schema"
PROBLEMS: Final = (TOO_LARGE, DAMAGED, NO_SCHEMA)


class Undecodable(ValueError):
    """No schema decodes the bytes; `problem` is one of `PROBLEMS`. The error never contains parts of a message."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class WrongSchema(ValueError):
    """The text is not a valid schema. The message is for its author."""


class DecodeBudget:
    """Number of values and characters that decoding may still produce. Raises `Undecodable(TOO_LARGE)` beyond it."""

    def __init__(self, values_max: int = limits.DECODED_VALUES_MAX, chars_max: int = limits.DECODED_CHARS_MAX) -> None:
        self._values_left, self._chars_left = values_max, chars_max

    def spend(self, chars: int, depth: int) -> None:
        """Subtracts one value at this depth, and the characters that it adds to the text."""
        self._values_left -= 1
        self._chars_left -= chars
        if self._values_left < 0 or self._chars_left < 0 or depth > limits.DECODED_DEPTH_MAX:
            raise Undecodable(TOO_LARGE)
