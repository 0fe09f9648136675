"""InitProducerId (IDE-1, IDE-2, TXN-5): sent to the coordinator of a transactional id; without one, to any broker."""

from __future__ import annotations

import asyncio

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.transactions import transactions
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER = -1


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


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if denied := _denial(call, request.transactional_id):
        return _failed(ErrorCode(denied))
    has_id = request.producer_id != NO_PRODUCER
    if has_id != (request.producer_epoch != NO_PRODUCER):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        expected = (request.producer_id, request.producer_epoch) if has_id else None
        code, producer_id, producer_epoch = await transactions.initialise(call, request, expected)
        return InitProducerIdResponse(
            error_code=downgraded(code, call.api_key, call.version),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
    try:
        producer_id = await call.services.coordination.producer_ids.next_id()
    except ClusterError:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)


def _denial(call: Call, transactional_id: str | None) -> int:
    """Returns the error code of a denial, else 0. WRITE on any topic allows an idempotent producer (KIP-679)."""
    if transactional_id is not None:
        return call.denial(ResourceType.TRANSACTIONAL_ID, transactional_id)
    denied = call.denial(ResourceType.CLUSTER)
    return 0 if not denied or call.rights.allows_any(AclOperation.WRITE, ResourceType.TOPIC) else denied


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=NO_PRODUCER, producer_epoch=-1)
