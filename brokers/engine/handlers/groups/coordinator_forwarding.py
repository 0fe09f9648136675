"""Beyond the instance's brokers: some brokers of a cluster serve an instance, and any of them may coordinate its groups
and transactions. FindCoordinator then names a broker of the instance, and that one passes on what is for the
coordinator, over the internal listener and in the client's name (CKA-5).

When the coordinator does not answer, the call is answered here as by any broker that does not coordinate: 16, and the
client looks for the coordinator again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, NamedTuple

from brokers.contract.partitions import NO_LEADER
from brokers.engine.handlers.context import NO_BROKER, Call, ForwardingFailed, Handler
from brokers.engine.handlers.groups.find_coordinator import GROUP, TRANSACTION, coordinator_of, forwarding_endpoint
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.scheduling.time_slice import TimeSlice

_K = ApiKey
# Version 0 of these is about ZooKeeper, which every broker asks itself.
_OFFSETS_FROM: Final = 1
_MANY_GROUPS_FROM: Final = 8
# From there on it is a call of brokers, about many transactions.
_MANY_TRANSACTIONS_FROM: Final = 4
# Of one call, that are passed on together.
IDS_AT_ONCE_MAX: Final = 200


def _group(call: Call, request: Any) -> str | None:
    return request.group_id


def _group_with_offsets(call: Call, request: Any) -> str | None:
    return request.group_id if call.version >= _OFFSETS_FROM else None


def _transaction(call: Call, request: Any) -> str | None:
    return request.transactional_id or None


def _one_transaction(call: Call, request: Any) -> str | None:
    return request.v3_and_below_transactional_id if call.version < _MANY_TRANSACTIONS_FROM else None


# Calls about one id, which go to its coordinator whole. An id of None is nobody's.
_ONE: Final[Mapping[ApiKey, tuple[int, Callable[[Call, Any], str | None]]]] = {
    _K.JOIN_GROUP: (GROUP, _group),
    _K.SYNC_GROUP: (GROUP, _group),
    _K.HEARTBEAT: (GROUP, _group),
    _K.LEAVE_GROUP: (GROUP, _group),
    _K.OFFSET_COMMIT: (GROUP, _group_with_offsets),
    _K.OFFSET_DELETE: (GROUP, _group),
    _K.TXN_OFFSET_COMMIT: (GROUP, _group),
    _K.INIT_PRODUCER_ID: (TRANSACTION, _transaction),
    _K.ADD_PARTITIONS_TO_TXN: (TRANSACTION, _one_transaction),
    _K.ADD_OFFSETS_TO_TXN: (TRANSACTION, _transaction),
    _K.END_TXN: (TRANSACTION, _transaction),
}


class _Many(NamedTuple):
    """A call about many ids: where they are in the request, and where the results are in the response."""

    kind: int
    asked: str
    id_of_asked: Callable[[Any], str]
    results: str
    id_of_result: Callable[[Any], str]


_MANY: Final[Mapping[ApiKey, _Many]] = {
    _K.DESCRIBE_GROUPS: _Many(GROUP, "groups", str, "groups", lambda group: group.group_id),
    _K.DELETE_GROUPS: _Many(GROUP, "groups_names", str, "results", lambda result: result.group_id),
    _K.OFFSET_FETCH: _Many(GROUP, "groups", lambda group: group.group_id, "groups", lambda group: group.group_id),
    _K.DESCRIBE_TRANSACTIONS: _Many(
        TRANSACTION, "transactional_ids", str, "transaction_states", lambda state: state.transactional_id
    ),
}


class _All(NamedTuple):
    """A call about all there is: every broker tells of what it coordinates."""

    results: str
    id_of_result: Callable[[Any], str]


_ALL: Final[Mapping[ApiKey, _All]] = {
    _K.LIST_GROUPS: _All("groups", lambda group: group.group_id),
    _K.LIST_TRANSACTIONS: _All("transaction_states", lambda state: state.transactional_id),
}


def with_forwarding(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The same handlers, where these calls are passed on to whom they are for."""
    result = dict(handlers)
    for key, (kind, id_of) in _ONE.items():
        result[int(key)] = _forwarding(result[int(key)], kind, id_of)
    for key, all_of in _ALL.items():
        result[int(key)] = _gathering(result[int(key)], all_of)
    for key, many in _MANY.items():
        result[int(key)] = _splitting(result[int(key)], many)
    fetch = result[int(_K.OFFSET_FETCH)]
    fetch_one = _forwarding(handlers[int(_K.OFFSET_FETCH)], GROUP, _group_with_offsets)
    result[int(_K.OFFSET_FETCH)] = lambda call, request: (
        fetch(call, request) if call.version >= _MANY_GROUPS_FROM else fetch_one(call, request)
    )
    return result


def _is_partial(call: Call) -> bool:
    """Whether somebody else than this instance's brokers, of which this is one, may coordinate for it."""
    view = call.view
    return (
        view.instance_id is not None
        and len(view.endpoints) < len(view.image.brokers)
        and call.engine.forwarder is not None
        and call.engine.broker_id in view.endpoints
    )


def _target(call: Call, kind: int, id: str) -> int:
    """The broker to which this one passes on what is about `id`; NO_BROKER: to none."""
    internal_id = call.view.namespace.internal_id(id)
    leader = coordinator_of(call.engine, kind, internal_id)
    if leader == NO_LEADER or leader in call.view.endpoints or not _forwards(call, internal_id):
        return NO_BROKER
    return leader


def _forwards(call: Call, internal_id: str) -> bool:
    named = forwarding_endpoint(call.view, internal_id)
    return named is not None and named.broker_id == call.engine.broker_id


async def _send(call: Call, broker_id: int, request: Any) -> Any:
    """Raises ForwardingFailed."""
    assert call.engine.forwarder is not None, "asked before"
    return await call.engine.forwarder(
        broker_id, call.view.principal, call.address, call.client_id, call.api_key, call.version, request
    )


async def _here(handler: Handler, call: Call, request: Any) -> Any:
    answer = handler(call, request)
    return await answer if hasattr(answer, "__await__") else answer


async def _there(handler: Handler, call: Call, broker_id: int, request: Any) -> Any:
    try:
        return await _send(call, broker_id, request)
    except ForwardingFailed:
        return await _here(handler, call, request)


def _forwarding(handler: Handler, kind: int, id_of: Callable[[Call, Any], str | None]) -> Handler:
    def handle(call: Call, request: Any) -> Any:
        if not _is_partial(call):
            return handler(call, request)
        id = id_of(call, request)
        target = NO_BROKER if id is None else _target(call, kind, id)
        return handler(call, request) if target == NO_BROKER else _there(handler, call, target, request)

    return handle


def _splitting(handler: Handler, many: _Many) -> Handler:
    def handle(call: Call, request: Any) -> Any:
        if not _is_partial(call):
            return handler(call, request)
        if len(getattr(request, many.asked)) > IDS_AT_ONCE_MAX:
            return _split_in_turns(handler, many, call, request)
        shares: dict[int, list[Any]] = defaultdict(list)
        for item in getattr(request, many.asked):
            shares[_target(call, many.kind, many.id_of_asked(item))].append(item)
        if not shares.keys() - {NO_BROKER}:
            return handler(call, request)
        return _gather_shares(handler, many, call, request, shares)

    return handle


async def _split_in_turns(handler: Handler, many: _Many, call: Call, request: Any) -> Any:
    """The same of very many ids."""
    shares: dict[int, list[Any]] = defaultdict(list)
    time_slice = TimeSlice()
    for item in getattr(request, many.asked):
        shares[_target(call, many.kind, many.id_of_asked(item))].append(item)
        await time_slice.pause()
    if not shares.keys() - {NO_BROKER}:
        return await _here(handler, call, request)
    return await _gather_shares(handler, many, call, request, shares)


async def _gather_shares(
    handler: Handler, many: _Many, call: Call, request: Any, shares: Mapping[int, list[Any]]
) -> Any:
    """Each coordinator's share of the answer, in the order in which was asked."""

    def part(items: list[Any]) -> Any:
        share = copy(request)
        setattr(share, many.asked, items)
        return share

    async def answers(target: int, items: list[Any]) -> list[Any]:
        # Some at a time: another broker's answers are decoded at once.
        begins = range(0, len(items), IDS_AT_ONCE_MAX)
        return [await _there(handler, call, target, part(items[at : at + IDS_AT_ONCE_MAX])) for at in begins]

    elsewhere = asyncio.gather(*(answers(target, items) for target, items in shares.items() if target != NO_BROKER))
    gathered = []
    try:
        if shares.get(NO_BROKER):
            # Not in a task of its own, which would have no turns.
            gathered.append([await _here(handler, call, part(shares[NO_BROKER]))])
        gathered += await elsewhere
    finally:
        elsewhere.cancel()
    time_slice = TimeSlice()
    matching: dict[str, list[Any]] = defaultdict(list)
    for response in (each for responses in gathered for each in responses):
        for result in getattr(response, many.results):
            matching[many.id_of_result(result)].append(result)
            await time_slice.pause()
    merged = gathered[0][0]
    results = []
    for item in getattr(request, many.asked):
        results += matching.pop(many.id_of_asked(item), [])
        await time_slice.pause()
    setattr(merged, many.results, results)
    return merged


def _gathering(handler: Handler, all_of: _All) -> Handler:
    def handle(call: Call, request: Any) -> Any:
        return _gather_all(handler, all_of, call, request) if _is_partial(call) else handler(call, request)

    return handle


async def _gather_all(handler: Handler, all_of: _All, call: Call, request: Any) -> Any:
    """What is coordinated here, and of what others coordinate that for which this broker stands in."""
    view = call.view
    response = await _here(handler, call, request)
    results = list(getattr(response, all_of.results))
    outside = [broker_id for broker_id in view.image.brokers if broker_id not in view.endpoints]
    time_slice = TimeSlice()
    others = await asyncio.gather(*(_send(call, broker_id, request) for broker_id in outside), return_exceptions=True)
    for other in others:
        if isinstance(other, ForwardingFailed):
            # Clients ask again for this.
            response.error_code = response.error_code or int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif isinstance(other, BaseException):
            raise other
        else:
            response.error_code = response.error_code or other.error_code
            for result in getattr(other, all_of.results):
                if _forwards(call, view.namespace.internal_id(all_of.id_of_result(result))):
                    results.append(result)
                await time_slice.pause()
    setattr(response, all_of.results, results)
    return response
