"""InitProducerId with a transactional id, AddOffsetsToTxn and EndTxn (TXN-5, TXN-8, TXN-10).

Transactional ids are prefixed internally (CKA-16), which keeps those of tenants apart.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from brokers.contract.acls import ResourceType
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.coordinators.partitioning import partition_of
from brokers.engine.coordinators.transactions.limits import ID_BYTES_MAX
from brokers.engine.coordinators.transactions.replies import NEEDS_PRODUCER_ID, Initialised, coordinator_error
from brokers.engine.handlers.context import DELETING, Call
from brokers.engine.handlers.groups import find_coordinator
from brokers.engine.handlers.groups.coordinator_calls import Operation, ask
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
)


async def asked(call: Call, internal_id: str, operation: Operation, failed: Callable[[int], Any]) -> Any:
    """Returns the reply of the coordinator of `internal_id`, or that of `failed(code)` if it cannot reply."""
    services = call.services

    def refused(code: int) -> Any:
        return failed(coordinator_error(code))

    reply = ask(services, services.coordination.transactions, internal_id, operation, refused)
    return await reply if isawaitable(reply) else reply


def id_refusal(call: Call, transactional_id: str) -> int:
    """Returns the error code if this call may not use the id, else 0."""
    if denied := call.denial(ResourceType.TRANSACTIONAL_ID, transactional_id):
        return denied
    if transactional_id == "":
        return int(ErrorCode.INVALID_REQUEST)
    if call.view.state == DELETING:
        return int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return 0


async def initialise(call: Call, request: InitProducerIdRequest, expected: tuple[int, int] | None) -> Initialised:
    """Answers an InitProducerId with a transactional id."""
    assert request.transactional_id is not None, "idempotent producers have no coordinator"
    refusal = id_refusal(call, request.transactional_id)
    if not refusal and len(request.transactional_id.encode()) > ID_BYTES_MAX:
        refusal = int(ErrorCode.INVALID_REQUEST)
    if refusal:
        return Initialised(refusal)
    internal_id = call.view.namespace.internal_id(request.transactional_id)
    timeout_ms = request.transaction_timeout_ms
    fresh_producer_id: int | None = None

    def operation(machine: Any, now: Any, _: object) -> Any:
        return machine.init_producer_id(internal_id, timeout_ms, expected, fresh_producer_id, now)

    reply: Initialised = await asked(call, internal_id, operation, Initialised)
    if reply is NEEDS_PRODUCER_ID:
        try:
            fresh_producer_id = await call.services.coordination.producer_ids.next_id()
        except ClusterError:
            return Initialised(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        reply = await asked(call, internal_id, operation, Initialised)
    return reply


async def add_offsets_to_txn(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Adds the group's partition of the offsets topic to the transaction (TXN-8)."""
    code = id_refusal(call, request.transactional_id) or call.denial(ResourceType.GROUP, request.group_id)
    code = code or await _add_offsets(call, request)
    return AddOffsetsToTxnResponse(error_code=downgraded(code, call.api_key, call.version))


async def _add_offsets(call: Call, request: AddOffsetsToTxnRequest) -> int:
    services, namespace = call.services, call.view.namespace
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
        find_coordinator.make_ready(services, find_coordinator.GROUP)
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = partition_of(namespace.internal_id(request.group_id), len(topic.partitions))

    def operation(machine: Any, now: Any, _: object) -> Any:
        return machine.add_partitions(
            internal_id, request.producer_id, request.producer_epoch, [(topic.name, index)], now
        )

    code: int = await asked(call, internal_id, operation, int)
    return code


async def end_txn(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Answers when the outcome is durable; the markers follow (TXN-10)."""
    code = id_refusal(call, request.transactional_id)
    if not code:
        internal_id = call.view.namespace.internal_id(request.transactional_id)

        def operation(machine: Any, now: Any, _: object) -> Any:
            return machine.end(internal_id, request.producer_id, request.producer_epoch, request.committed, now)

        code = await asked(call, internal_id, operation, int)
    return EndTxnResponse(error_code=downgraded(code, call.api_key, call.version))
