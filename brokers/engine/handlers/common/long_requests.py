"""Long requests are answered in parts, and other requests are served between the parts (I.6).

Each part is passed to the handler as a request, and the responses are joined: the result of a topic or a partition does
not depend on the others in the request. A long response is encoded in chunks. Lengths are counted in lines: items of a
list, such as topics, and elements of the lists within them, such as partitions. Repetitions of ids and partitions are
limited, since the response to one may be ten thousand times as long as its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Final

from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.served_api import SplitLists
from brokers.engine.protocol.codec import EncodedResponse, encode_response_in_pieces
from brokers.engine.scheduling.time_slice import TimeSlice, yield_to_others

# Number of lines of a request that are processed in one turn of the event loop, some microseconds each.
LINES_PER_TURN_MAX: Final = 200
# Maximum number of lines of a response that is encoded in one turn of the event loop.
LINES_AT_ONCE_MAX: Final = 1_000
# Responses to longer requests are encoded in chunks even if they have few lines, since they repeat the names.
REQUEST_BYTES_MAX: Final = 1024 * 1024
# Maximum number of repetitions in one request, of ids and of partitions. Real clients repeat none.
REPEATED_IDS_MAX: Final = 10
REPEATED_LINES_MAX: Final = 1_000


def is_long_request(split: SplitLists, request: Any) -> bool:
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


def is_long_response(context: RequestContext, response: Any) -> bool:
    """True if a response takes more than one turn to encode."""
    result_lines = context.api.result_lines
    if result_lines is None:
        return False
    return context.request_bytes > REQUEST_BYTES_MAX or result_lines(response) > LINES_AT_ONCE_MAX


async def encoded_in_chunks(api_key: int, version: int, response: Any) -> EncodedResponse:
    """Encodes a response, one chunk in each turn of the event loop. Lazy lists in it are generated at the same time."""
    chunks = encode_response_in_pieces(api_key, version, response)
    await yield_to_others()  # creating a long response took this turn
    while True:
        try:
            next(chunks)
        except StopIteration as end:
            return EncodedResponse(end.value, getattr(response, "throttle_time_ms", 0))
        await yield_to_others()


def beyond_duplicate_limit(ids: Iterable[str]) -> Iterator[bool]:
    """Yields a flag for each id, in order: True if it is a repetition beyond `REPEATED_IDS_MAX`."""
    known: set[str] = set()
    repeated = 0
    for id in ids:
        is_repeated = id in known
        repeated += is_repeated
        known.add(id)
        yield is_repeated and repeated > REPEATED_IDS_MAX


class DuplicateLimits:
    """Counts repeated partitions in one request."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def are_too_many(self, wanted: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """True if the request exceeds the limit with these partitions, by topic."""
        lines = sum(len(indexes) for _, indexes in wanted)
        if lines > REPEATED_LINES_MAX - self._count:
            lines -= len({(name, index) for name, indexes in wanted for index in indexes})
        self._count += lines
        return self._count > REPEATED_LINES_MAX

    async def are_too_many_of(self, wanted: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """Does the work of `are_too_many` for many partitions, and serves other requests in between."""
        time_slice = TimeSlice()
        known: set[tuple[str, int]] = set()
        for name, indexes in wanted:
            for begin in range(0, len(indexes), LINES_PER_TURN_MAX):
                part = indexes[begin : begin + LINES_PER_TURN_MAX]
                before = len(known)
                known.update([(name, index) for index in part])
                self._count += len(part) - (len(known) - before)
                await time_slice.pause()
            await time_slice.pause()  # a topic may have no partitions
        return self._count > REPEATED_LINES_MAX
