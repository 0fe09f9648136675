"""Requests of handlers to coordinators: answered synchronously where possible, else with an awaitable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, Now
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.coordinators.ticket import Ticket
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.services import AccessServices, BrokerServices
from brokers.engine.protocol.errors import ErrorCode

Operation = Callable[[Any, Now, Ticket], CoordinatorResult]


class WaitingClient(NamedTuple):
    """Client that may lose its right during its wait. `denial` returns the error code of the response in that case, 0
    while it has the right.
    """

    instance_id: str | None
    denial: Callable[[], int]


def ask(
    services: BrokerServices,
    runtime: Runtime[Any] | None,
    id: str,
    operation: Operation,
    failed: Callable[[int], Any],
    asker: WaitingClient | None = None,
) -> Any:
    """Returns the reply of a coordinator's `operation` on `id`, or an awaitable of it. `failed(code)` makes the reply
    if this broker is not the coordinator or not ready (14, 15 or 16), if a commit takes too long (7), or if `asker`
    lost its right.
    """
    if runtime is None:
        return failed(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return _asked(services, failed, lambda ticket: runtime.perform(id, operation, ticket), asker)


def ask_group(
    context: RequestContext,
    group_id: str,
    operation: Operation,
    failed: Callable[[int], Any],
    asker: WaitingClient | None = None,
) -> Any:
    """Asks the coordinator of a group, given by its internal id."""
    return ask(context.services, context.services.coordination.groups, group_id, operation, failed, asker)


def ask_at(
    services: BrokerServices, runtime: Runtime[Any], index: int, operation: Operation, failed: Callable[[int], Any]
) -> Any:
    """Does the work of `ask` for an operation on a whole partition of the state topic."""
    return _asked(services, failed, lambda ticket: runtime.perform_at(index, operation, ticket))


def _asked(
    services: BrokerServices,
    failed: Callable[[int], Any],
    perform: Callable[[Ticket], Any],
    asker: WaitingClient | None = None,
) -> Any:
    later = _Later(services.loop)
    ticket = Ticket(failed, later.keep)
    reply = perform(ticket)
    if reply is not REPLY_PENDING:
        ticket.abandon()
        return reply
    return _waited(ticket, later) if asker is None else _waited_with_right(services.access, ticket, later, asker)


class _Later:
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

    def keep(self, reply: Any) -> None:
        if not self.future.done():
            self.future.set_result(reply)


async def _waited(ticket: Ticket, later: _Later) -> Any:
    try:
        return await later.future
    finally:
        ticket.abandon()


async def _waited_with_right(access: AccessServices, ticket: Ticket, later: _Later, asker: WaitingClient) -> Any:
    def check() -> None:
        code = asker.denial()
        if code:
            ticket.fail(code)

    with access.waiting_calls.checking_on_change(asker.instance_id, check):
        check()  # the right may have been revoked since the request began, in an earlier turn
        return await _waited(ticket, later)
