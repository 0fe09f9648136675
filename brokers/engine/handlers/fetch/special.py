"""Fetches that are answered without a read for a client: invalid requests, and those of followers."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.common.background import serve_in_turns
from brokers.engine.handlers.common.long_requests import encode_in_chunks
from brokers.engine.handlers.fetch.follower_fetch import fetch_as_follower, respond_error
from brokers.engine.handlers.fetch.request import READ_COMMITTED, TOPIC_IDS_FROM, UNDEFINED
from brokers.engine.handlers.session import RawRequest, Session
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec import FetchFrame
from brokers.engine.protocol.headers import encode_response_frame
from brokers.engine.protocol.messages.fetch import FetchableTopicResponse, FetchPartitionData, FetchResponse
from brokers.engine.scheduling.time_slice import TimeSlice, free_incrementally

FULL_FETCH_EPOCHS: Final = (0, -1)


def serve_special(session: Session, raw: RawRequest, frame: FetchFrame) -> bool:
    """Serves a follower's request or an invalid one. Returns False for all others, which `fetch.serve` serves."""
    if not 0 <= frame.isolation <= READ_COMMITTED:
        serve_in_turns(session, int(ApiKey.FETCH), raw.client_id, _reject_isolation(session, raw, frame))
    elif frame.replica_id >= 0:
        fetch_as_follower(session, raw.version, raw.correlation_id, frame)
    elif frame.session_epoch not in FULL_FETCH_EPOCHS:
        respond_error(session, raw.version, raw.correlation_id, int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    else:
        return False
    return True


async def _reject_isolation(session: Session, raw: RawRequest, frame: FetchFrame) -> None:
    response = await encode_rejection(raw.version, raw.correlation_id, int(ErrorCode.UNKNOWN_SERVER_ERROR), frame)
    session.cancel = None
    session.channel.respond(response)


async def encode_rejection(version: int, correlation_id: int, error: int, frame: FetchFrame) -> bytes:
    """Returns the response that rejects the request; versions without topic ids repeat the error for each partition."""
    topics = []
    if version < TOPIC_IDS_FROM:
        time_slice = TimeSlice()
        for key, wanted in frame.topics:
            await time_slice.pause()  # a topic may be named without partitions
            partitions = []
            for partition in wanted:
                await time_slice.pause()
                partitions.append(
                    FetchPartitionData(
                        partition_index=partition[0],
                        error_code=error,
                        high_watermark=UNDEFINED,
                        aborted_transactions=[],
                        records=None,
                    )
                )
            topics.append(FetchableTopicResponse(topic=key.decode("utf-8", "replace"), partitions=partitions))
    response = FetchResponse(error_code=error, responses=topics)
    body = (await encode_in_chunks(ApiKey.FETCH, version, response)).body
    await free_incrementally(topics, lambda topic: topic.partitions)
    return encode_response_frame(ApiKey.FETCH, version, correlation_id, body)
