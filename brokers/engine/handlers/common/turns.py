"""Long requests are answered in parts, and other requests are served between the parts (I.6).

Each part is passed to the handler as a request, and the responses are joined: the result of a topic or a partition does
not depend on the others in the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import copy
from typing import Any, Final

from brokers.engine.handlers.served_api import SplitLists
from brokers.engine.scheduling.time_slice import yield_to_others

# Number of lines of a request that are processed in one turn of the event loop, some microseconds each.
LINES_PER_TURN_MAX: Final = 200


def is_long(split: SplitLists, request: Any) -> bool:
    """True if a request has more lines than are processed in one turn. Items count as lines, too."""
    items = split.items.get(request)
    if items is None:
        return False
    if len(items) > split.lines_max:
        return True
    lines = split.lines
    if lines is None:
        return False
    return sum(1 + len(lines.get(item) or ()) for item in items) > split.lines_max


def result_lines(split: SplitLists) -> Callable[[Any], int]:
    """Returns a function that counts the lines of a response."""

    def count(response: Any) -> int:
        results = split.results.get(response)
        lines = split.result_lines
        return len(results) if lines is None else len(results) + sum(len(lines.get(result)) for result in results)

    return count


async def answer_in_turns(split: SplitLists, request: Any, answer: Callable[[Any], Awaitable[Any]]) -> Any:
    """Returns the joined responses of `answer` to the parts of `request`."""
    joined: Any = None
    results: list[Any] = []
    for items, continues in _parts(split, split.items.get(request)):
        part = copy(request)
        split.items.set(part, items)
        response = await answer(part)
        part_results = list(split.results.get(response))
        if continues and results and part_results and split.result_lines is not None:
            first = part_results.pop(0)
            split.result_lines.get(results[-1]).extend(split.result_lines.get(first))
        results += part_results
        if joined is None or getattr(response, "error_code", False):
            joined = response
        await yield_to_others()
    split.results.set(joined, results)
    return joined


def _parts(split: SplitLists, items: Sequence[Any]) -> Iterator[tuple[list[Any], bool]]:
    """Yields the items of each part, and True if its first item continues the last one of the part before."""
    part: list[Any] = []
    room, continues = split.lines_max, False
    for item in items:
        lines: Sequence[Any] = () if split.lines is None else split.lines.get(item) or ()
        begin = 0
        while True:
            if room < 1:
                yield part, continues
                part, room, continues = [], split.lines_max, begin > 0
            taken = min(len(lines) - begin, max(room - 1, 1))
            if taken == len(lines):
                part.append(item)
            else:
                assert split.lines is not None, "only lists are split"
                piece = copy(item)
                split.lines.set(piece, list(lines[begin : begin + taken]))
                part.append(piece)
            begin += taken
            room -= 1 + taken
            if begin >= len(lines):
                break
    if part:
        yield part, continues
