"""Produce from version 3 on: a request that does not have to wait is appended and answered synchronously."""

from __future__ import annotations

from brokers.engine.handlers.produce.append import answer, append_topics
from brokers.engine.handlers.produce.async_produce import AsyncProduce, start
from brokers.engine.handlers.produce.recompression import SlowSets, may_be_slow, slow_sets
from brokers.engine.handlers.produce.request import ProduceRequest
from brokers.engine.handlers.produce.transaction_verification import TransactionClaims, gather_claims
from brokers.engine.handlers.session import RawRequest, Session


def produce(session: Session, raw: RawRequest) -> None:
    """Appends the records before it returns. Requests with many batches, and those that have to wait, are served by a
    task (`async_produce.run`).
    """
    request = ProduceRequest(session, raw)
    claims: TransactionClaims | None = None
    slow: SlowSets | None = None
    at_once = not request.is_long and request.in_debt() is None
    if at_once and request.is_transactional():
        claims = gather_claims(request)
        at_once = not claims.unverified
    if at_once and may_be_slow(request):
        slow = slow_sets(request, request.topics)
        at_once = not slow
    if at_once and not request.takes_turns():
        client = request.client()
        request.charge_received(client)
        append_topics(request, client, request.topics)
        answer(request, client)
        return
    request.outlive_frame()
    start(AsyncProduce(request, claims, slow))
