"""Forwarding to coordinators outside of an instance's brokers. Some brokers of a cluster serve an instance, and any
broker may coordinate its groups and transactions. FindCoordinator then returns a broker of the instance, which forwards
the calls to the coordinator, over the internal listener and in the client's name (CKA-5).

If the coordinator does not answer, the call fails with NOT_COORDINATOR (16), and the client looks for the coordinator
again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, NamedTuple

from brokers.contract.partitions import NO_LEADER
from brokers.engine.handlers.context import NO_BROKER, RequestContext
from brokers.engine.handlers.groups.find_coordinator import coordinator_of, forwarding_endpoint
from brokers.engine.handlers.served_api import Forwarding, HandleLocally, ListField
from brokers.engine.handlers.services import ForwardingFailed
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.scheduling.time_slice import TimeSlice

# Version 0 of the offset calls uses ZooKeeper, which every broker reads itself.
_OFFSETS_FROM: Final = 1
MANY_GROUPS_FROM: Final = 8
# First version of AddPartitionsToTxn that only brokers send, for many transactions.
_MANY_TRANSACTIONS_FROM: Final = 4
# Maximum number of ids of one call that are forwarded in one request.
IDS_AT_ONCE_MAX: Final = 200


# The following functions return the id by which a request is forwarded; None if it has none.


def group_id(context: RequestContext, request: Any) -> str | None:
    return request.group_id


def group_id_with_offsets(context: RequestContext, request: Any) -> str | None:
    return request.group_id if context.version >= _OFFSETS_FROM else None


def transactional_id(context: RequestContext, request: Any) -> str | None:
    return request.transactional_id or None


def single_transactional_id(context: RequestContext, request: Any) -> str | None:
    return request.v3_and_below_transactional_id if context.version < _MANY_TRANSACTIONS_FROM else None


class ToCoordinator(NamedTuple):
    """Forwards a whole request to the coordinator of its single id, which `id_of` returns; None stands for no id."""

    kind: int
    id_of: Callable[[RequestContext, Any], str | None]

    def needs_other_brokers(self, context: RequestContext, request: Any) -> bool:
        return _is_partial(context) and self._target(context, request) != NO_BROKER

    async def forward(self, context: RequestContext, request: Any, handle_locally: HandleLocally) -> Any:
        target = self._target(context, request)
        return await (
            handle_locally(context, request)
            if target == NO_BROKER
            else _send_or_handle_locally(handle_locally, context, target, request)
        )

    def _target(self, context: RequestContext, request: Any) -> int:
        id = self.id_of(context, request)
        return NO_BROKER if id is None else _target(context, self.kind, id)


class ToEachCoordinator(NamedTuple):
    """Splits a request for many ids by their coordinators, and joins the results in the order of the request."""

    kind: int
    ids: ListField
    id_of_item: Callable[[Any], str]
    results: ListField
    id_of_result: Callable[[Any], str]

    def needs_other_brokers(self, context: RequestContext, request: Any) -> bool:
        if not _is_partial(context):
            return False
        items = self.ids.get(request)
        if len(items) > IDS_AT_ONCE_MAX:
            return True  # more ids are checked in turns
        return any(_target(context, self.kind, self.id_of_item(item)) != NO_BROKER for item in items)

    async def forward(self, context: RequestContext, request: Any, handle_locally: HandleLocally) -> Any:
        items_by_broker: dict[int, list[Any]] = defaultdict(list)
        time_slice = TimeSlice()
        for item in self.ids.get(request):
            items_by_broker[_target(context, self.kind, self.id_of_item(item))].append(item)
            await time_slice.pause()
        if not items_by_broker.keys() - {NO_BROKER}:
            return await handle_locally(context, request)
        return await self._forward_shares(context, request, items_by_broker, handle_locally)

    async def _forward_shares(
        self,
        context: RequestContext,
        request: Any,
        items_by_broker: Mapping[int, list[Any]],
        handle_locally: HandleLocally,
    ) -> Any:
        def part(items: list[Any]) -> Any:
            part_request = copy(request)
            self.ids.set(part_request, items)
            return part_request

        async def forward_in_parts(target: int, items: list[Any]) -> list[Any]:
            # Limited parts, since another broker's response is decoded in one turn.
            starts = range(0, len(items), IDS_AT_ONCE_MAX)
            return [
                await _send_or_handle_locally(
                    handle_locally, context, target, part(items[start : start + IDS_AT_ONCE_MAX])
                )
                for start in starts
            ]

        remote_calls = asyncio.gather(
            *(forward_in_parts(target, items) for target, items in items_by_broker.items() if target != NO_BROKER)
        )
        gathered = []
        try:
            if items_by_broker.get(NO_BROKER):
                # Not in a task of its own, whose steps would not be turns of the instance.
                gathered.append([await handle_locally(context, part(items_by_broker[NO_BROKER]))])
            gathered += await remote_calls
        finally:
            remote_calls.cancel()
        time_slice = TimeSlice()
        results_by_id: dict[str, list[Any]] = defaultdict(list)
        for response in (response for responses in gathered for response in responses):
            for result in self.results.get(response):
                results_by_id[self.id_of_result(result)].append(result)
                await time_slice.pause()
        joined = gathered[0][0]
        results = []
        for item in self.ids.get(request):
            results += results_by_id.pop(self.id_of_item(item), [])
            await time_slice.pause()
        self.results.set(joined, results)
        return joined


class ToAllCoordinators(NamedTuple):
    """Asks every coordinator of the cluster, for a call that lists everything."""

    results: ListField
    id_of_result: Callable[[Any], str]

    def needs_other_brokers(self, context: RequestContext, request: Any) -> bool:
        return _is_partial(context)

    async def forward(self, context: RequestContext, request: Any, handle_locally: HandleLocally) -> Any:
        """Adds results of brokers outside the instance, for ids that this broker forwards, to its own."""
        view = context.view
        response = await handle_locally(context, request)
        results = list(self.results.get(response))
        outside = [broker_id for broker_id in view.image.brokers if broker_id not in view.endpoints]
        time_slice = TimeSlice()
        others = await asyncio.gather(
            *(_send(context, broker_id, request) for broker_id in outside), return_exceptions=True
        )
        for other in others:
            if isinstance(other, ForwardingFailed):
                # An error that clients retry.
                response.error_code = response.error_code or int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif isinstance(other, BaseException):
                raise other
            else:
                response.error_code = response.error_code or other.error_code
                for result in self.results.get(other):
                    if _forwards(context, view.namespace.internal_id(self.id_of_result(result))):
                        results.append(result)
                    await time_slice.pause()
        self.results.set(response, results)
        return response


class ByVersion(NamedTuple):
    """Forwards in one way before version `changed_in` of the call, and in another way from it on."""

    changed_in: int
    before: Forwarding
    since: Forwarding

    def needs_other_brokers(self, context: RequestContext, request: Any) -> bool:
        return self._for_version(context).needs_other_brokers(context, request)

    async def forward(self, context: RequestContext, request: Any, handle_locally: HandleLocally) -> Any:
        return await self._for_version(context).forward(context, request, handle_locally)

    def _for_version(self, context: RequestContext) -> Forwarding:
        return self.since if context.version >= self.changed_in else self.before


def _is_partial(context: RequestContext) -> bool:
    """True if brokers outside the instance may coordinate for it."""
    view = context.view
    return (
        view.instance_id is not None
        and len(view.endpoints) < len(view.image.brokers)
        and context.services.coordination.forwarder is not None
        and context.services.broker_id in view.endpoints
    )


def _target(context: RequestContext, kind: int, id: str) -> int:
    """Returns the broker that calls about `id` are forwarded to; NO_BROKER for none."""
    internal_id = context.view.namespace.internal_id(id)
    leader = coordinator_of(context.services, kind, internal_id)
    if leader == NO_LEADER or leader in context.view.endpoints or not _forwards(context, internal_id):
        return NO_BROKER
    return leader


def _forwards(context: RequestContext, internal_id: str) -> bool:
    endpoint = forwarding_endpoint(context.view, internal_id)
    return endpoint is not None and endpoint.broker_id == context.services.broker_id


async def _send(context: RequestContext, broker_id: int, request: Any) -> Any:
    """Sends the request to another broker. Raises ForwardingFailed."""
    assert context.services.coordination.forwarder is not None, "checked before"
    return await context.services.coordination.forwarder(
        broker_id, context.view.principal, context.address, context.client_id, context.api_key, context.version, request
    )


async def _send_or_handle_locally(
    handle_locally: HandleLocally, context: RequestContext, broker_id: int, request: Any
) -> Any:
    try:
        return await _send(context, broker_id, request)
    except ForwardingFailed:
        return await handle_locally(context, request)
