"""Fetch from version 4 on (WIRE-27 to 33, QUO-19, QUO-20).

A request is read from the log and answered synchronously; a request that waits for more records is a `DelayedFetch`;
a task serves requests that need the disk or name many partitions (`async_fetch`).

Every response is a full one: fetch sessions (WIRE-30) are never created, which the protocol allows. A client that asks
for a session gets session id 0 and continues with full requests. The session id of a full request names a session to
close, and there is none.

Waiting fetches begin and end with every request, so a completed wait leaves no reference cycle: the garbage collector
would stop the broker to find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.handlers.fetch.async_fetch import (
    SYNCHRONOUS_REQUEST_BYTES_MAX,
    serve_special,
    start_from_disk,
    start_long,
)
from brokers.engine.handlers.fetch.reading import read
from brokers.engine.handlers.fetch.request import READ_COMMITTED, FetchRequest, without_repeats
from brokers.engine.handlers.fetch.response import respond
from brokers.engine.handlers.fetch.waits import charge_long_turn
from brokers.engine.handlers.session import RawRequest, Session
from brokers.engine.partitions.delayed_operations import DelayedCommittedRead, DelayedRead
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.fast_codec_fetch import decode_fetch
from brokers.engine.scheduling.fair_turns import QueuedWork


def fetch(session: Session, raw: RawRequest) -> None:
    """Answers the request, or starts the task that will."""
    if raw.end - raw.start > SYNCHRONOUS_REQUEST_BYTES_MAX and not session.principal.internal:
        start_long(session, raw)
        return
    frame = decode_fetch(raw.buffer, raw.body, raw.end, raw.version, session.fetch_items_max)
    if serve_special(session, raw, frame):
        return
    serve(FetchRequest(session, raw, without_repeats(frame)), may_delay=True)


def serve(request: FetchRequest, *, may_delay: bool) -> None:
    """Answers with the records that can be read, or, with `may_delay`, waits for more.

    If too many decoded requests of the instance wait, this one is answered at once.
    """
    client = request.client()
    limit_bytes = request.limit_bytes(client)
    read_result = read(request, client, request.frame.topics, limit_bytes, wait=False)
    if read_result.uncached_reads:
        read_result.release()
        start_from_disk(request, read_result.uncached_reads, may_delay=may_delay)
        return
    missing_bytes = request.missing_bytes(client, read_result, limit_bytes) if may_delay else 0
    if missing_bytes and _begin_delay(request):
        read_result.release()
        DelayedFetch(request, read_result.watched, missing_bytes)
        return
    respond(request, client, read_result)


def _begin_delay(request: FetchRequest) -> bool:
    """Counts the memory of a request that waits. Returns False if its instance has no room for it."""
    session = request.session
    instance_id = session.principal.instance_id
    if instance_id is None:
        return True
    return session.services.accounting.decode_memory.begin_delay(instance_id, request.size_bytes)


class DelayedFetch:
    """A client's fetch that waits until `missing_bytes` more are readable, until the broker no longer leads one of the
    partitions, or until the client may no longer read one of the topics.

    One event may wake thousands of them. Each is then completed in the turn of its instance (`fair_turns`), and long
    turns are charged to the instance.
    """

    __slots__ = ("_operation", "_request", "_tick", "_turn")

    def __init__(self, request: FetchRequest, watched: Sequence[Partition], missing_bytes: int) -> None:
        self._request = request
        self._turn: QueuedWork | None = None
        is_committed = request.frame.isolation == READ_COMMITTED
        operation = (
            DelayedCommittedRead(self._wake, missing_bytes) if is_committed else DelayedRead(self._wake, missing_bytes)
        )
        self._operation = operation
        for partition in watched:
            operation.watch(partition)
        session = request.session
        self._tick = session.services.deadlines.add(operation, request.frame.max_wait_ms)
        session.cancel = self._cancel
        instance_id = session.principal.instance_id
        if instance_id is not None:
            session.services.access.waiting_calls.add(instance_id, self)

    def check_right(self) -> None:
        """Ends the wait if the client may no longer read one of the topics."""
        if self._operation.done:
            return
        session = self._request.session
        rights = session.rights()
        if rights.is_unrestricted:
            return
        namespace = session.view().namespace
        for key, _ in self._request.frame.topics:
            if self._request.names_topics_by_id:
                topic = namespace.topic_by_id(key)
                if topic is None:
                    continue
                name = topic.user_name
            else:
                name = key.decode(errors="replace")
            if not rights.allows(AclOperation.READ, ResourceType.TOPIC, name):
                self._operation.end()
                return

    def _wake(self) -> None:
        """Schedules the response. This runs inside the append that ended the wait: the producer's response is sent
        first, and the same request may append more bytes.
        """
        session = self._request.session
        self._turn = session.channel.turns.schedule(session.services.loop.call_soon, self._serve)

    def _serve(self) -> None:
        self._turn = None
        self._leave()
        self._request.session.cancel = None
        complete(self._request)

    def _leave(self) -> None:
        session = self._request.session
        session.services.deadlines.drop(self._operation, self._tick)
        self._operation.leave()
        instance_id = session.principal.instance_id
        if instance_id is not None:
            session.services.access.waiting_calls.remove(instance_id, self)
            session.services.accounting.decode_memory.end_delay(instance_id, self._request.size_bytes)

    def _cancel(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.cancel()
        self._leave()
        self._operation.cancel()


def complete(request: FetchRequest) -> None:
    """Answers a request after its wait; a long turn is charged, since the event that woke it has not paid for it."""
    session, began_s = request.session, perf_counter()
    session.begin_turn()
    try:
        serve(request, may_delay=False)
    except Exception as error:  # one tenant's request must not stop the broker of all tenants
        session.channel.fail(error)
    session.end_turn()
    charge_long_turn(session, perf_counter() - began_s)
