"""Long requests are handled some lines at a time, and other requests come in between (I.6).

Each part is a request of its own to the handler, and the answers are put together again: what an API says of a topic
or a partition does not depend on the others that are named with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from brokers.engine.handlers.context import Call, Handler
from brokers.engine.scheduling.time_slice import yield_to_others

# Of a request that are handled in one turn of the loop: some microseconds each.
LINES_PER_TURN_MAX: Final = 200


class Shape(NamedTuple):
    """Where a request has its long list, and an answer the results of it; `lines` and `result_lines` are the lists
    within each item of them, None where an item is a line itself. `lines_max`: that are handled together.
    """

    items: str
    results: str
    lines: str | None = None
    result_lines: str | None = None
    lines_max: int = LINES_PER_TURN_MAX


def in_turns(handler: Handler, shape: Shape) -> Handler:
    """`handler`, which answers long requests in turns."""

    def handle(call: Call, request: Any) -> Any:
        items = getattr(request, shape.items)
        if items is None or (len(items) <= shape.lines_max and _count(items, shape) <= shape.lines_max):
            return handler(call, request)
        return _answer_in_turns(handler, shape, call, request, items)

    return handle


def results_of(shape: Shape) -> Callable[[Any], int]:
    """Counts the lines of an answer (`chunked_encoding.in_chunks`)."""

    def count(answer: Any) -> int:
        results = getattr(answer, shape.results)
        if shape.result_lines is None:
            return len(results)
        return len(results) + sum(len(getattr(result, shape.result_lines)) for result in results)

    return count


def _count(items: Sequence[Any], shape: Shape) -> int:
    if shape.lines is None:
        return len(items)
    lines = shape.lines
    return sum(1 + len(getattr(item, lines) or ()) for item in items)


async def _answer_in_turns(handler: Handler, shape: Shape, call: Call, request: Any, items: Sequence[Any]) -> Any:
    whole: Any = None
    results: list[Any] = []
    for part, goes_on in _parts(items, shape):
        share = copy(request)
        setattr(share, shape.items, part)
        answer = handler(call, share)
        if hasattr(answer, "__await__"):
            answer = await answer
        share_results = list(getattr(answer, shape.results))
        if goes_on and results and share_results and shape.result_lines is not None:
            first = share_results.pop(0)
            getattr(results[-1], shape.result_lines).extend(getattr(first, shape.result_lines))
        results += share_results
        if whole is None or getattr(answer, "error_code", False):
            whole = answer
        await yield_to_others()
    setattr(whole, shape.results, results)
    return whole


def _parts(items: Sequence[Any], shape: Shape) -> Iterator[tuple[list[Any], bool]]:
    """`items` in parts of so many lines, and whether the first item of a part is the rest of the last one of the part
    before. An item counts as a line itself.
    """
    part: list[Any] = []
    room, goes_on = shape.lines_max, False
    for item in items:
        lines: Sequence[Any] = () if shape.lines is None else getattr(item, shape.lines) or ()
        begin = 0
        while True:
            if room < 1:
                yield part, goes_on
                part, room, goes_on = [], shape.lines_max, begin > 0
            taken = min(len(lines) - begin, max(room - 1, 1))
            if taken == len(lines):
                part.append(item)
            else:
                assert shape.lines is not None, "only lists are cut"
                piece = copy(item)
                setattr(piece, shape.lines, list(lines[begin : begin + taken]))
                part.append(piece)
            begin += taken
            room -= 1 + taken
            if begin >= len(lines):
                break
    if part:
        yield part, goes_on
