"""Produce from version 3 on: a request that does not have to wait is appended and answered synchronously."""

from __future__ import annotations

from brokers.engine.handlers.produce.append import append_topics, respond
from brokers.engine.handlers.produce.async_produce import AsyncProduce, start
from brokers.engine.handlers.produce.recompression import SlowBatches, find_slow_batches, may_be_slow
from brokers.engine.handlers.produce.request import ProduceRequest
from brokers.engine.handlers.produce.transaction_verification import TransactionClaims, gather_claims
from brokers.engine.handlers.session import RawRequest, Session


def produce(session: Session, raw: RawRequest) -> None:
    """Appends the records before it returns, or starts the task that serves a request that is long or has to wait."""
    request = ProduceRequest(session, raw)
    claims: TransactionClaims | None = None
    slow_batches: SlowBatches | None = None
    is_synchronous = not request.is_long and request.in_debt() is None
    if is_synchronous and request.is_transactional():
        claims = gather_claims(request)
        is_synchronous = not claims.unverified
    if is_synchronous and may_be_slow(request):
        slow_batches = find_slow_batches(request, request.topics)
        is_synchronous = not slow_batches
    if is_synchronous and not request.is_appended_in_turns():
        client = request.client()
        request.charge_received(client)
        append_topics(request, client, request.topics)
        respond(request, client)
        return
    request.retain_frame()
    start(AsyncProduce(request, claims, slow_batches))
