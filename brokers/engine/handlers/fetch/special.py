"""Fetches that are answered without a read for a client: invalid requests, and those of followers."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.common.background import answer_in_turns
from brokers.engine.handlers.fetch.fetch_errors import NO_SESSION, READ_COMMITTED, refused
from brokers.engine.handlers.fetch.follower_fetch import fetch_as_follower
from brokers.engine.handlers.raw_request import RawRequest
from brokers.engine.handlers.session import Session
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec import FetchFrame, encode_fetch_response

FULL_FETCH_EPOCHS: Final = (0, -1)


def answer_special(session: Session, raw: RawRequest, frame: FetchFrame) -> bool:
    """Answers a follower's request or an invalid one. Returns False for all others."""
    if not 0 <= frame.isolation <= READ_COMMITTED:
        answer_in_turns(session, int(ApiKey.FETCH), raw.client_id, _refuse(session, raw, frame))
    elif frame.replica_id >= 0:
        fetch_as_follower(session, raw.version, raw.correlation_id, frame)
    elif frame.session_epoch not in FULL_FETCH_EPOCHS:
        error = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.channel.respond_parts(encode_fetch_response(raw.version, raw.correlation_id, 0, error, NO_SESSION, []))
    else:
        return False
    return True


async def _refuse(session: Session, raw: RawRequest, frame: FetchFrame) -> None:
    response = await refused(raw.version, raw.correlation_id, int(ErrorCode.UNKNOWN_SERVER_ERROR), frame)
    session.cancel = None
    session.channel.respond(response)
