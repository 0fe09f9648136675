"""Encodes, charges and sends the response of a client's Fetch (QUO-19, QUO-20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.context import TenantMetadataView
from brokers.engine.handlers.fetch.request import (
    NO_SESSION,
    READ_COMMITTED,
    FetchReadResult,
    FetchRequest,
    PartitionResult,
)
from brokers.engine.handlers.session import Session
from brokers.engine.handlers.throttle_time import Reason, Throttle, apply_longest
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_fetch_response import (
    FetchExtras,
    encode_fetch_response,
    encode_full_fetch_response,
)
from brokers.engine.protocol.messages.fetch import FetchNodeEndpoint, FetchResponse
from brokers.engine.throttling.charging import Limiter, charge_fetch
from brokers.engine.throttling.usage import UsageCounter
from brokers.engine.throttling.waits import Mute
from brokers.engine.values import Slice

# First version whose responses can name the current leaders.
LEADERS_FROM: Final = 16
WRONG_LEADER_ERRORS: Final = frozenset((int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)))
# The tagged fields of a response come after throttle time, error, session id and an empty list of topics.
_TAGGED_AT: Final = 4 + 2 + 4 + 1
FRAME_SIZE_BYTES: Final = 4


def find_leaders(
    view: TenantMetadataView, version: int, topic_results: Sequence[tuple[bytes, Sequence[PartitionResult]]]
) -> tuple[dict[tuple[bytes, int], tuple[int, int]], bytes]:
    """Returns the leader and leader epoch of each partition that was requested from the wrong broker or in an old
    epoch, by topic id and partition index, and the tagged fields with the addresses of these leaders. Both are
    arguments of `FetchExtras`.
    """
    leaders: dict[tuple[bytes, int], tuple[int, int]] = {}
    for key, results in topic_results:
        topic = view.namespace.topic_by_id(key)
        for index, error_code, *_ in results:
            if error_code in WRONG_LEADER_ERRORS and topic is not None and index < len(topic.partitions):
                state = topic.partitions[index]
                leaders[key, index] = state.leader, state.leader_epoch
    leader_endpoints = [view.endpoints.get(id) for id in sorted({leader for leader, _ in leaders.values()})]
    endpoints = [
        FetchNodeEndpoint(node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
        for endpoint in leader_endpoints
        if endpoint is not None
    ]
    body = encode_response(ApiKey.FETCH, version, FetchResponse(node_endpoints=endpoints))
    return leaders, body[_TAGGED_AT:]


def respond(request: FetchRequest, client: ClientContext, read_result: FetchReadResult) -> None:
    """Encodes the response, charges it and sends it."""
    if read_result.diverging:
        # The reader has to truncate first; its next request gets the records.
        read_result.release()
    version, correlation_id = request.version, request.correlation_id
    is_committed = request.frame.isolation == READ_COMMITTED
    topic_results, aborted, diverging = read_result.topic_results, read_result.aborted, read_result.diverging
    preferred = read_result.preferred
    if read_result.must_respond and version >= LEADERS_FROM:
        leaders, tagged_fields = find_leaders(request.session.view(), version, topic_results)
        extras = FetchExtras(is_committed, aborted, leaders, diverging, tagged_fields, preferred)
        parts = encode_full_fetch_response(version, correlation_id, 0, 0, NO_SESSION, topic_results, extras)
    elif aborted or diverging or preferred:
        extras = FetchExtras(is_committed, aborted, diverging=diverging, preferred=preferred)
        parts = encode_full_fetch_response(version, correlation_id, 0, 0, NO_SESSION, topic_results, extras)
    else:
        parts = encode_fetch_response(version, correlation_id, 0, 0, NO_SESSION, topic_results, is_committed)
    send(request, client, read_result, parts)


def send(
    request: FetchRequest, client: ClientContext, read_result: FetchReadResult, parts: list[bytes | Slice]
) -> None:
    """Charges the encoded response and sends it. Over the limits it is sent without records, uncharged."""
    session = request.session
    topic_charges = [] if read_result.diverging else read_result.topic_charges
    if client.consume_limiters or client.request_limiter is not None or topic_charges:
        head = parts[0]
        assert isinstance(head, bytes), "a frame begins with its size"
        size_bytes = FRAME_SIZE_BYTES + int.from_bytes(head[:FRAME_SIZE_BYTES], "big")
        delay_ms, mute = charge_response(session, client, size_bytes, topic_charges)
        if delay_ms:
            read_result.release()
            frame = encode_fetch_response(request.version, request.correlation_id, delay_ms, 0, NO_SESSION, [])
            session.channel.respond_parts(frame, delay_ms, mute=mute)
            return
    if not read_result.metered or read_result.diverging:
        session.channel.respond_parts(parts)
        return
    session.channel.respond_parts(parts, 0, SentMeter(session, client, read_result.metered))


def charge_response(
    session: Session, client: ClientContext, size_bytes: int, topic_charges: list[tuple[Limiter, int]]
) -> tuple[int, Mute | None]:
    """Charges a response of `size_bytes`, unless it exceeds a limit. Returns its delay in ms and its mute.
    `topic_charges` has the limiters of topics, with the bytes that were read from each.
    """
    now_ms = session.services.clock.monotonic_ms()
    request_limiter = client.request_limiter
    time_ms = 0 if request_limiter is None else session.time_delay_ms(request_limiter)
    charged = [(limiter, size_bytes) for limiter in client.consume_limiters] + topic_charges
    delay_ms, limiter = charge_fetch(charged, now_ms, time_ms > 0)
    if not delay_ms and not time_ms:
        return 0, None
    throttles = Throttle(delay_ms, Reason.BYTES, limiter), Throttle(time_ms, Reason.CLIENT_QUOTA, request_limiter)
    return apply_longest(session.services, client, throttles)


class SentMeter:
    """Meters the records of a response after they were sent."""

    __slots__ = ("_client", "_metered", "_session")

    def __init__(self, session: Session, client: ClientContext, metered: list[tuple[UsageCounter | None, int]]) -> None:
        self._session = session
        self._client = client
        self._metered = metered

    def __call__(self, sent_bytes: int) -> None:
        meter(self._session, self._client, self._metered, sent_bytes)


def meter(
    session: Session, client: ClientContext, metered: list[tuple[UsageCounter | None, int]], sent_bytes: int
) -> None:
    """Meters `sent_bytes` bytes of records, in the order of the response. `metered` has the bytes of each topic."""
    if not sent_bytes:
        return
    session.accounting.totals.consume_bytes += sent_bytes
    if client.accounting is not None:
        client.accounting.traffic.add_consumed(sent_bytes, session.services.clock.now_ms())
    remaining_bytes = sent_bytes
    for usage, topic_bytes in metered:
        written_bytes = topic_bytes if topic_bytes < remaining_bytes else remaining_bytes
        if usage is not None and written_bytes:
            usage.add(written_bytes)
        remaining_bytes -= written_bytes
