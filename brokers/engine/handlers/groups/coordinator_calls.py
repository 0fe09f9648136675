"""Requests of handlers to coordinators: answered synchronously where possible, else with an awaitable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, Now, Ticket
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.services import AccessServices, BrokerServices
from brokers.engine.protocol.errors import ErrorCode

Operation = Callable[[Any, Now, Ticket], CoordinatorResult]


class WaitingClient(NamedTuple):
    """Client that may lose its right during its wait; `denial` returns the error code in that case, else 0."""

    instance_id: str | None
    denial: Callable[[], int]


def call_coordinator(
    services: BrokerServices,
    runtime: Runtime[Any] | None,
    id: str,
    operation: Operation,
    error_reply: Callable[[int], Any],
    waiting_client: WaitingClient | None = None,
) -> Any:
    """Returns the reply of a coordinator's `operation` on `id`, or an awaitable of it. `error_reply(code)` makes the
    reply if this broker is not the coordinator or not ready (14, 15 or 16), if a commit takes too long (7), or if
    `waiting_client` lost its right.
    """
    if runtime is None:
        return error_reply(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return _call(services, error_reply, lambda ticket: runtime.perform(id, operation, ticket), waiting_client)


def call_group_coordinator(
    context: RequestContext,
    group_id: str,
    operation: Operation,
    error_reply: Callable[[int], Any],
    waiting_client: WaitingClient | None = None,
) -> Any:
    """Asks the coordinator of a group, given by its internal id."""
    return call_coordinator(
        context.services, context.services.coordination.groups, group_id, operation, error_reply, waiting_client
    )


def call_coordinator_at(
    services: BrokerServices, runtime: Runtime[Any], index: int, operation: Operation, error_reply: Callable[[int], Any]
) -> Any:
    """Does the work of `call_coordinator` for an operation on a whole partition of the state topic."""
    return _call(services, error_reply, lambda ticket: runtime.perform_at(index, operation, ticket))


def _call(
    services: BrokerServices,
    error_reply: Callable[[int], Any],
    perform: Callable[[Ticket], Any],
    waiting_client: WaitingClient | None = None,
) -> Any:
    pending_reply = _PendingReply(services.loop)
    ticket = Ticket(error_reply, pending_reply.set)
    reply = perform(ticket)
    if reply is not REPLY_PENDING:
        ticket.abandon()
        return reply
    return (
        _await_reply(ticket, pending_reply)
        if waiting_client is None
        else _await_reply_with_right(services.access, ticket, pending_reply, waiting_client)
    )


class _PendingReply:
    """A reply that may arrive later; it makes a future only if one is awaited."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[Any] | None = None

    @property
    def future(self) -> asyncio.Future[Any]:
        if self._future is None:
            self._future = self._loop.create_future()
        return self._future

    def set(self, reply: Any) -> None:
        if not self.future.done():
            self.future.set_result(reply)


async def _await_reply(ticket: Ticket, pending_reply: _PendingReply) -> Any:
    try:
        return await pending_reply.future
    finally:
        ticket.abandon()


async def _await_reply_with_right(
    access: AccessServices, ticket: Ticket, pending_reply: _PendingReply, waiting_client: WaitingClient
) -> Any:
    def check() -> None:
        code = waiting_client.denial()
        if code:
            ticket.fail(code)

    with access.waiting_calls.checking_on_change(waiting_client.instance_id, check):
        check()  # the right may have been revoked since the request began, in an earlier turn
        return await _await_reply(ticket, pending_reply)
