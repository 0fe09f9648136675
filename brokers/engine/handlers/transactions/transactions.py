"""InitProducerId, AddOffsetsToTxn and EndTxn (IDE-1, IDE-2, TXN-5, TXN-8, TXN-10). An InitProducerId without a
transactional id may be sent to any broker.

Transactional ids are prefixed internally (CKA-16), which keeps those of tenants apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.coordinators.limits import TRANSACTIONAL_ID_BYTES_MAX
from brokers.engine.coordinators.partitioning import partition_of
from brokers.engine.coordinators.transactions.replies import NEEDS_PRODUCER_ID, InitProducerIdReply, coordinator_error
from brokers.engine.handlers.context import DELETING, RequestContext
from brokers.engine.handlers.groups import find_coordinator
from brokers.engine.handlers.groups.coordinator_calls import Operation, call_coordinator
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NO_PRODUCER = -1


async def call_transaction_coordinator(
    context: RequestContext, internal_id: str, operation: Operation, make_error_reply: Callable[[int], Any]
) -> Any:
    """Returns the reply of the coordinator of `internal_id`, or `make_error_reply(code)` if it cannot reply."""
    services = context.services

    def error_reply(code: int) -> Any:
        return make_error_reply(coordinator_error(code))

    reply = call_coordinator(services, services.coordination.transactions, internal_id, operation, error_reply)
    return await reply if isawaitable(reply) else reply


def id_refusal(context: RequestContext, transactional_id: str) -> int:
    """Returns the error code if this call may not use the id, else 0."""
    if denied := context.denial(ResourceType.TRANSACTIONAL_ID, transactional_id):
        return denied
    if transactional_id == "":
        return int(ErrorCode.INVALID_REQUEST)
    if context.view.state == DELETING:
        return int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return 0


async def initialise_producer(
    context: RequestContext, request: InitProducerIdRequest, expected: tuple[int, int] | None
) -> InitProducerIdReply:
    """Answers a transactional InitProducerId. `expected` is the producer id and epoch that the client names, if any."""
    assert request.transactional_id is not None, "idempotent producers have no coordinator"
    refusal = id_refusal(context, request.transactional_id)
    if not refusal and len(request.transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        refusal = int(ErrorCode.INVALID_REQUEST)
    if refusal:
        return InitProducerIdReply(refusal)
    internal_id = context.view.namespace.internal_id(request.transactional_id)
    timeout_ms = request.transaction_timeout_ms
    fresh_producer_id: int | None = None

    def operation(machine: Any, now: Any, _: object) -> Any:
        return machine.init_producer_id(internal_id, timeout_ms, expected, fresh_producer_id, now)

    reply: InitProducerIdReply = await call_transaction_coordinator(
        context, internal_id, operation, InitProducerIdReply
    )
    if reply is NEEDS_PRODUCER_ID:
        try:
            fresh_producer_id = await context.services.coordination.producer_ids.next_id()
        except ClusterError:
            return InitProducerIdReply(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        reply = await call_transaction_coordinator(context, internal_id, operation, InitProducerIdReply)
    return reply


async def add_offsets_to_txn(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Adds the group's partition of the offsets topic to the transaction (TXN-8)."""
    code = id_refusal(context, request.transactional_id) or context.denial(ResourceType.GROUP, request.group_id)
    code = code or await _add_offsets(context, request)
    return AddOffsetsToTxnResponse(error_code=downgraded(code, context.api_key, context.version))


async def _add_offsets(context: RequestContext, request: AddOffsetsToTxnRequest) -> int:
    services, namespace = context.services, context.view.namespace
    internal_id = namespace.internal_id(request.transactional_id)
    # The wrong coordinator is an error even if coordinators of groups are unavailable.
    refusal = (
        0 if services.coordination.transactions is None else services.coordination.transactions.refusal(internal_id)
    )
    if refusal:
        return coordinator_error(refusal)
    topic = services.metadata.current.image.topics.get(services.coordination.settings.groups_topic.name)
    if topic is None or topic.deleting:
        # A partition that does not exist would count as deleted when the transaction ends.
        find_coordinator.ensure_state_topic(services, find_coordinator.GROUP)
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = partition_of(namespace.internal_id(request.group_id), len(topic.partitions))
    code: int = await call_transaction_coordinator(
        context,
        internal_id,
        lambda machine, now, _: machine.add_partitions(
            internal_id, request.producer_id, request.producer_epoch, [(topic.name, index)], now
        ),
        int,
    )
    return code


async def end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Answers when the outcome is durable; the markers follow (TXN-10)."""
    code = id_refusal(context, request.transactional_id)
    if not code:
        internal_id = context.view.namespace.internal_id(request.transactional_id)
        producer = request.producer_id, request.producer_epoch
        end = request.committed
        code = await call_transaction_coordinator(
            context, internal_id, lambda machine, now, _: machine.end(internal_id, *producer, end, now), int
        )
    return EndTxnResponse(error_code=downgraded(code, context.api_key, context.version))


class BlockProducerIds:
    """Allocates ids from blocks of 1000; ids left in a block when the broker stops are never used."""

    def __init__(self, store: ClusterStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._block = iter(range(0))
        self._lock = asyncio.Lock()

    async def next_id(self) -> int:
        """Returns the next id. Raises ClusterError if a new block is needed and cannot be allocated."""
        async with self._lock:
            for producer_id in self._block:
                return producer_id
            self._block = iter(await self._store.next_producer_id_block(self._broker_id))
            return next(self._block)


async def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if denied := _denial(context, request.transactional_id):
        return _error_response(ErrorCode(denied))
    has_id = request.producer_id != NO_PRODUCER
    if has_id != (request.producer_epoch != NO_PRODUCER):
        return _error_response(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        expected = (request.producer_id, request.producer_epoch) if has_id else None
        code, producer_id, producer_epoch = await initialise_producer(context, request, expected)
        return InitProducerIdResponse(
            error_code=downgraded(code, context.api_key, context.version),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
    try:
        producer_id = await context.services.coordination.producer_ids.next_id()
    except ClusterError:
        return _error_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)


def _denial(context: RequestContext, transactional_id: str | None) -> int:
    """Returns the error code of a denial, else 0. WRITE on any topic allows an idempotent producer (KIP-679)."""
    if transactional_id is not None:
        return context.denial(ResourceType.TRANSACTIONAL_ID, transactional_id)
    denied = context.denial(ResourceType.CLUSTER)
    return 0 if not denied or context.rights.allows_any(AclOperation.WRITE, ResourceType.TOPIC) else denied


def _error_response(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=NO_PRODUCER, producer_epoch=-1)
