"""Encodes, charges and sends the response of a client's Fetch (QUO-19, QUO-20)."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.fetch.current_leaders import LEADERS_FROM, find_leaders
from brokers.engine.handlers.fetch.fetch_errors import NO_SESSION, READ_COMMITTED
from brokers.engine.handlers.fetch.read_result import FetchReadResult
from brokers.engine.handlers.fetch.request import FetchRequest
from brokers.engine.handlers.session import Session
from brokers.engine.protocol.fast_codec import FetchExtras, encode_fetch_response, encode_full_fetch_response
from brokers.engine.throttling.charging import Limiter, charge_fetch
from brokers.engine.throttling.usage import UsageCounter
from brokers.engine.throttling.waits import Mute
from brokers.engine.values import Slice

FRAME_SIZE_BYTES: Final = 4


def answer(request: FetchRequest, client: Client, read_result: FetchReadResult) -> None:
    """Encodes the response, charges it and sends it."""
    if read_result.diverging:
        # The reader has to truncate first; its next request gets the records.
        read_result.release()
    version, correlation_id = request.version, request.correlation_id
    is_committed = request.frame.isolation == READ_COMMITTED
    answers, aborted, diverging = read_result.answers, read_result.aborted, read_result.diverging
    if read_result.must_answer and version >= LEADERS_FROM:
        leaders, tagged = find_leaders(request.session.view(), version, answers)
        extras = FetchExtras(is_committed, aborted, leaders, diverging, tagged)
        parts = encode_full_fetch_response(version, correlation_id, 0, 0, NO_SESSION, answers, extras)
    elif aborted or diverging:
        extras = FetchExtras(is_committed, aborted, diverging=diverging)
        parts = encode_full_fetch_response(version, correlation_id, 0, 0, NO_SESSION, answers, extras)
    else:
        parts = encode_fetch_response(version, correlation_id, 0, 0, NO_SESSION, answers, is_committed)
    send(request, client, read_result, parts)


def send(request: FetchRequest, client: Client, read_result: FetchReadResult, parts: list[bytes | Slice]) -> None:
    """Charges the encoded response and sends it. Over the limits it is sent without records, uncharged."""
    session, services = request.session, request.session.services
    limited = [] if read_result.diverging else read_result.limited
    if client.consume_limiters or client.request_limiter is not None or limited:
        head = parts[0]
        assert isinstance(head, bytes), "a frame begins with its size"
        size_bytes = FRAME_SIZE_BYTES + int.from_bytes(head[:FRAME_SIZE_BYTES], "big")
        delay_ms, limiter = charge_for(session, client, size_bytes, limited)
        if limiter is not None:
            read_result.release()
            client.remember_delay(limiter, delay_ms, services.clock.now_ms())
            session.channel.respond_parts(
                encode_fetch_response(request.version, request.correlation_id, delay_ms, 0, NO_SESSION, []), delay_ms,
                mute=None if limiter is client.request_limiter else Mute(limiter, delay_ms, services.loop_clock),
            )  # fmt: skip
            return
    if not read_result.metered or read_result.diverging:
        session.channel.respond_parts(parts)
        return
    session.channel.respond_parts(parts, 0, SentMeter(session, client, read_result.metered))


def charge_for(
    session: Session, client: Client, size_bytes: int, limited: list[tuple[Limiter, int]]
) -> tuple[int, Limiter | None]:
    """Returns the delay of a response of `size_bytes`, and its limiter. `limited` are the topics' limiters."""
    now_ms = session.services.clock.monotonic_ms()
    request_limiter = client.request_limiter
    time_ms = 0 if request_limiter is None else session.time_delay_ms(request_limiter)
    charged = [(limiter, size_bytes) for limiter in client.consume_limiters] + limited
    delay_ms, limiter = charge_fetch(charged, now_ms, time_ms > 0)
    return (time_ms, request_limiter) if time_ms > delay_ms else (delay_ms, limiter)


class SentMeter:
    """Meters the records of a response after they were sent."""

    __slots__ = ("_client", "_metered", "_session")

    def __init__(self, session: Session, client: Client, metered: list[tuple[UsageCounter | None, int]]) -> None:
        self._session = session
        self._client = client
        self._metered = metered

    def __call__(self, sent_bytes: int) -> None:
        meter(self._session, self._client, self._metered, sent_bytes)


def meter(session: Session, client: Client, metered: list[tuple[UsageCounter | None, int]], count: int) -> None:
    """Meters `count` bytes of records that were sent, in the order of the response."""
    if not count:
        return
    session.accounting.totals.consume_bytes += count
    if client.accounting is not None:
        client.accounting.traffic.consumed(count, session.services.clock.now_ms())
    for usage, length in metered:
        written = length if length < count else count
        if usage is not None and written:
            usage.add(written)
        count -= written
