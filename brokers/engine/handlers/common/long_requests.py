"""Long requests are handled in parts, and other requests are served between the parts (I.6).

Each part is passed to the handler as a request, and the responses are joined: the result of a topic or a partition does
not depend on the others in the request. A long response is encoded in chunks. Lengths are counted in elements: those of
a list, such as topics, and those of the lists within them, such as partitions. Repetitions of ids and partitions are
limited, since the response to one may be ten thousand times as long as its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Final

from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.served_api import SplitLists
from brokers.engine.protocol.codec import EncodedResponse, encode_response_in_pieces
from brokers.engine.scheduling.time_slice import TimeSlice, free_set_incrementally, yield_to_others

# Number of elements of a request that are processed in one turn of the event loop, some microseconds each.
ELEMENTS_PER_TURN_MAX: Final = 200
# Maximum number of elements of a response that is encoded in one turn of the event loop.
ELEMENTS_AT_ONCE_MAX: Final = 1_000
# Responses to longer requests are encoded in chunks even if they have few elements, since they repeat the names.
REQUEST_BYTES_MAX: Final = 1024 * 1024
# Maximum number of repetitions in one request, of ids and of partitions. Real clients repeat none.
REPEATED_IDS_MAX: Final = 10
REPEATED_ELEMENTS_MAX: Final = 1_000


def is_long_request(split: SplitLists, request: Any) -> bool:
    """True if a request has more elements than are processed in one turn."""
    items = split.items.get(request)
    if items is None:
        return False
    if len(items) > split.elements_max:
        return True
    nested_items = split.nested_items
    if nested_items is None:
        return False
    return sum(1 + len(nested_items.get(item) or ()) for item in items) > split.elements_max


def response_length_by(split: SplitLists) -> Callable[[Any], int]:
    """Returns a function that counts the elements of a response in the lists of `split`."""

    def count(response: Any) -> int:
        results = split.results.get(response)
        nested = split.nested_results
        return len(results) if nested is None else len(results) + sum(len(nested.get(result)) for result in results)

    return count


async def handle_in_parts(split: SplitLists, request: Any, handle: Callable[[Any], Awaitable[Any]]) -> Any:
    """Returns the joined responses of `handle` to the parts of `request`."""
    joined: Any = None
    results: list[Any] = []
    for items, is_continuation in _parts(split, split.items.get(request)):
        part = copy(request)
        split.items.set(part, items)
        response = await handle(part)
        part_results = list(split.results.get(response))
        if is_continuation and results and part_results and split.nested_results is not None:
            first_result = part_results.pop(0)
            split.nested_results.get(results[-1]).extend(split.nested_results.get(first_result))
        results += part_results
        if joined is None or getattr(response, "error_code", False):
            joined = response
        await yield_to_others()
    split.results.set(joined, results)
    return joined


def _parts(split: SplitLists, items: Sequence[Any]) -> Iterator[tuple[list[Any], bool]]:
    """Yields the items of each part, and True if its first item continues the last one of the part before."""
    part: list[Any] = []
    room, is_continuation = split.elements_max, False
    for item in items:
        nested: Sequence[Any] = () if split.nested_items is None else split.nested_items.get(item) or ()
        begin = 0
        while True:
            if room < 1:
                yield part, is_continuation
                part, room, is_continuation = [], split.elements_max, begin > 0
            count = min(len(nested) - begin, max(room - 1, 1))
            if count == len(nested):
                part.append(item)
            else:
                assert split.nested_items is not None, "only lists are split"
                partial_item = copy(item)
                split.nested_items.set(partial_item, list(nested[begin : begin + count]))
                part.append(partial_item)
            begin += count
            room -= 1 + count
            if begin >= len(nested):
                break
    if part:
        yield part, is_continuation


def is_long_response(context: RequestContext, response: Any) -> bool:
    """True if a response takes more than one turn to encode."""
    response_length = context.api.response_length
    if response_length is None:
        return False
    return context.request_bytes > REQUEST_BYTES_MAX or response_length(response) > ELEMENTS_AT_ONCE_MAX


async def encode_in_chunks(api_key: int, version: int, response: Any) -> EncodedResponse:
    """Encodes a response, one chunk in each turn of the event loop. Lazy lists in it are generated at the same time."""
    chunks = encode_response_in_pieces(api_key, version, response)
    await yield_to_others()  # creating a long response took this turn
    while True:
        try:
            next(chunks)
        except StopIteration as end:
            return EncodedResponse(end.value, getattr(response, "throttle_time_ms", 0))
        await yield_to_others()


def repetitions_beyond_limit(ids: Iterable[str]) -> Iterator[bool]:
    """Yields a flag for each id, in order: True if it is a repetition beyond `REPEATED_IDS_MAX`."""
    known: set[str] = set()
    repeated = 0
    for id in ids:
        is_repeated = id in known
        repeated += is_repeated
        known.add(id)
        yield is_repeated and repeated > REPEATED_IDS_MAX


class DuplicateLimit:
    """Counts repeated partitions in one request."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def exceeded_by(self, requested_topics: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """True if the request exceeds the limit with these partitions, by topic."""
        count = sum(len(indexes) for _, indexes in requested_topics)
        if count > REPEATED_ELEMENTS_MAX - self._count:
            count -= len({(name, index) for name, indexes in requested_topics for index in indexes})
        self._count += count
        return self._count > REPEATED_ELEMENTS_MAX

    async def exceeded_by_many(self, requested_topics: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """Does the work of `exceeded_by` for many partitions, and serves other requests in between."""
        time_slice = TimeSlice()
        known: set[tuple[str, int]] = set()
        for name, indexes in requested_topics:
            for begin in range(0, len(indexes), ELEMENTS_PER_TURN_MAX):
                part = indexes[begin : begin + ELEMENTS_PER_TURN_MAX]
                previous_count = len(known)
                known.update([(name, index) for index in part])
                self._count += len(part) - (len(known) - previous_count)
                await time_slice.pause()
            await time_slice.pause()  # a topic may have no partitions
        await free_set_incrementally(known)
        return self._count > REPEATED_ELEMENTS_MAX
