"""A Fetch of very many partitions: decoded and read some at a time, and other requests come in between (I.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.common.background import answer_in_turns, parts_of
from brokers.engine.handlers.fetch.current_leaders import LEADERS_FROM, find_leaders
from brokers.engine.handlers.fetch.delayed_fetch import bytes_still_missing, may_be_delayed
from brokers.engine.handlers.fetch.fetch_errors import NO_SESSION, READ_COMMITTED
from brokers.engine.handlers.fetch.in_turn import InTurn
from brokers.engine.handlers.fetch.prefetch import ROUNDS_MAX, prefetch
from brokers.engine.handlers.fetch.reading import Reading
from brokers.engine.handlers.fetch.repeats import without_repeats_in_turns
from brokers.engine.handlers.raw_request import RawRequest
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.delayed_operations import DelayedCommittedRead, DelayedRead
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fast_codec import (
    FetchDecoder,
    FetchFrame,
    FetchResponseEncoder,
    fetch_response_head,
)
from brokers.engine.request_turns import Place
from brokers.engine.scheduling.time_slice import yield_to_others
from brokers.engine.throttling.charging import fetch_cap_bytes

# Longer requests take turns: this is some 500 partitions.
READ_AT_ONCE_BYTES_MAX: Final = 16 * 1024
# Topics and partitions that are decoded in one turn.
DECODED_AT_ONCE_MAX: Final = 1_000
ENCODED_AT_ONCE_MAX: Final = 1_000
# Of so many partitions and a few more an answer has records: each is a file to be sent from. The others come first in
# what the client asks for next.
SLICES_MAX: Final = 500
NOBODY: Final[dict[tuple[bytes, int], tuple[int, int]]] = {}

Read = Callable[[Client, Session, FetchFrame, int, int, bool, bool], Reading]
Send = Callable[[Session, Client, int, int, Reading, list[Any]], None]
Handle = Callable[[Session, str | None, int, int, FetchFrame, Place | None], None]


def decode_long(session: Session, raw: RawRequest, handle: Handle) -> None:
    """`handle` with the request once all of it is decoded."""
    session.channel.hold(raw.size_bytes)
    answer_in_turns(session, int(ApiKey.FETCH), raw.client_id, _decode_long(session, raw.copy(), handle))


async def _decode_long(session: Session, raw: RawRequest, handle: Handle) -> None:
    instance_id = session.principal.instance_id
    assert instance_id is not None, "who is of no instance is internal"
    # Decoded, and answered, it takes far more memory than it has bytes.
    place = await session.engine.decoded_places.enter(instance_id, raw.size_bytes)
    try:
        decoder = FetchDecoder(raw.buffer, raw.body, raw.end, raw.version, session.fetch_items_max)
        is_over = decoder.advance(DECODED_AT_ONCE_MAX)
        while not is_over:
            await yield_to_others()
            is_over = decoder.advance(DECODED_AT_ONCE_MAX)
        frame = await without_repeats_in_turns(decoder.frame())
        session.channel.release()
        session.cancel = None
        handle(session, raw.client_id, raw.version, raw.correlation_id, frame, place)
    except BaseException:
        place.leave()
        raise


def serve_long(
    session: Session,
    client_id: str | None,
    version: int,
    correlation_id: int,
    frame: FetchFrame,
    read: Read,
    send: Send,
    place: Place,
) -> None:
    """As any fetch is served, but some partitions at a time are read, and encoded; `send` has a turn of its own."""
    long_fetch = _LongFetch(session, client_id, version, frame, read, place)

    async def work() -> None:
        reading = await long_fetch.reading()
        try:
            parts = await long_fetch.encoded(correlation_id, reading)
        except BaseException:
            reading.release()
            raise
        session.cancel = None
        send(session, session.client(client_id), version, correlation_id, reading, parts)

    answer_in_turns(session, int(ApiKey.FETCH), client_id, work(), place.leave)


class _LongFetch:
    def __init__(
        self, session: Session, client_id: str | None, version: int, frame: FetchFrame, read: Read, place: Place
    ) -> None:
        self._session = session
        self._client_id = client_id
        self._version = version
        self._frame = frame
        self._read = read
        self._place = place

    async def reading(self) -> Reading:
        """All that there is to answer, after the wait that was asked for."""
        session = self._session
        readable = InTurn(session.engine, session.principal.instance_id)
        # Any change of rights ends the wait, also one that comes while it is read: it names too much to look at.
        with session.engine.waiting_calls.holding(session.principal.instance_id, readable.set):
            reading = await self._everything()
            missing_bytes = self._missing_bytes(reading)
            if missing_bytes > 0:
                reading.release()
                # Few may wait (`may_be_delayed`), and others are answered meanwhile.
                self._place.leave()
                await self._until_readable(readable, reading.watched, missing_bytes)
                reading = await self._everything()
        return reading

    def _limit(self) -> int:
        most = min(self._frame.max_bytes, self._session.engine.fetch_bytes_max)
        return fetch_cap_bytes(self._session.client(self._client_id).consume_limiters, most)

    async def _everything(self) -> Reading:
        for round_number in range(ROUNDS_MAX + 1):
            reading = await self._once(wait=round_number == ROUNDS_MAX)
            if not reading.missing:
                return reading
            reading.release()
            await prefetch(self._session.engine, reading.missing)
        raise AssertionError("a reading that waits for the disk misses nothing")

    async def _once(self, *, wait: bool) -> Reading:
        reading, limit = Reading(), self._limit()
        try:
            for part, goes_on in parts_of(self._frame.topics):
                client = self._session.client(self._client_id)
                left_bytes = max(limit - reading.readable_bytes, 0) if reading.slices < SLICES_MAX else 0
                share = self._frame._replace(topics=part)
                later = self._read(
                    client, self._session, share, self._version, left_bytes, wait, not reading.readable_bytes
                )
                reading.extend(later, goes_on)
                await yield_to_others()
        except BaseException:
            reading.release()
            raise
        return reading

    async def encoded(self, correlation_id: int, reading: Reading) -> list[Any]:
        """The pieces of the answer. With `diverging` records wait for the next request, which the reader sends after it
        truncated.
        """
        version, diverging = self._version, reading.diverging
        if diverging:
            reading.release()
        leaders, tagged = NOBODY, b"\x00"
        if reading.must_answer and version >= LEADERS_FROM:
            leaders, tagged = find_leaders(self._session.view(), version, reading.answers)
            await yield_to_others()
        is_committed = self._frame.isolation == READ_COMMITTED
        encoder = FetchResponseEncoder(version, is_committed, reading.aborted, leaders, diverging)
        room = ENCODED_AT_ONCE_MAX
        for key, lines in reading.answers:
            encoder.begin_topic(key, len(lines))
            for begin in range(0, len(lines), ENCODED_AT_ONCE_MAX):
                part = lines[begin : begin + ENCODED_AT_ONCE_MAX]
                encoder.add(key, part)
                room -= len(part)
                if room <= 0:
                    room = ENCODED_AT_ONCE_MAX
                    encoder.compact()
                    await yield_to_others()
            room -= 1
            encoder.end_topic()
        head = fetch_response_head(version, correlation_id, 0, 0, NO_SESSION, len(reading.answers))
        await yield_to_others()
        return encoder.finish(head, tagged)

    def _missing_bytes(self, reading: Reading) -> int:
        """How many bytes there have to be more until the fetch is answered, 0 if it is not to wait (WIRE-27)."""
        frame = self._frame
        wanted_bytes = min(frame.min_bytes, self._limit())
        partitions = sum(len(wanted) for _, wanted in frame.topics)
        may_wait = frame.max_wait_ms > 0 and not reading.must_answer and bool(reading.watched)
        if wanted_bytes <= reading.readable_bytes or not may_wait:
            return 0
        if not may_be_delayed(partitions, self._session.view()):
            return 0
        if not reading.readable_bytes:
            return wanted_bytes
        routes = self._session.client(self._client_id).consume_routes
        asked = []
        for (key, wanted), (_, lines) in zip(frame.topics, reading.answers, strict=True):
            if key not in routes:  # the lists, or the topic, changed meanwhile
                return 0
            found = routes[key].partitions
            asked += [
                (found[wish[0]], wish[2], wish[5])
                for wish, line in zip(wanted, lines, strict=True)
                if not line[1] and wish[0] in found
            ]
        return bytes_still_missing(asked, frame.isolation, wanted_bytes)

    async def _until_readable(self, readable: InTurn, watched: list[Partition], missing_bytes: int) -> None:
        kind = DelayedCommittedRead if self._frame.isolation else DelayedRead
        operation = kind(readable.set, missing_bytes)
        for partition in watched:
            operation.watch(partition)
        engine = self._session.engine
        tick = engine.deadlines.add(operation, self._frame.max_wait_ms)
        try:
            await readable.event.wait()
        finally:
            engine.deadlines.drop(operation, tick)
            operation.cancel()
