"""How a handler asks a coordinator: at once where it can be answered at once, else with something to await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, Now
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.coordinators.ticket import Ticket
from brokers.engine.handlers.services import AccessServices, BrokerServices
from brokers.engine.protocol.errors import ErrorCode

Operation = Callable[[Any, Now, Ticket], CoordinatorResult]


class Asker(NamedTuple):
    """Who may lose its right while it waits: `denial` says so by an error code, with which it is answered."""

    instance_id: str | None
    denial: Callable[[], int]


def ask(
    services: BrokerServices,
    runtime: Runtime[Any] | None,
    id: str,
    operation: Operation,
    failed: Callable[[int], Any],
    asker: Asker | None = None,
) -> Any:
    """The reply, or an awaitable of it. `failed(code)` makes the reply where this broker cannot decide (14, 15 or 16),
    where a commit takes too long (7), or where `asker` may not be answered any more.
    """
    if runtime is None:
        return failed(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return _asked(services, failed, lambda ticket: runtime.perform(id, operation, ticket), asker)


def ask_at(
    services: BrokerServices, runtime: Runtime[Any], index: int, operation: Operation, failed: Callable[[int], Any]
) -> Any:
    """As `ask`, of everything in one partition of the state topic."""
    return _asked(services, failed, lambda ticket: runtime.perform_at(index, operation, ticket))


def _asked(
    services: BrokerServices, failed: Callable[[int], Any], perform: Callable[[Ticket], Any], asker: Asker | None = None
) -> Any:
    later = _Later(services.loop)
    ticket = Ticket(failed, later.keep)
    reply = perform(ticket)
    if reply is not REPLY_PENDING:
        ticket.abandon()
        return reply
    return _waited(ticket, later) if asker is None else _waited_with_right(services.access, ticket, later, asker)


class _Later:
    """The reply, once it is there; a future only for those who wait."""

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


async def _waited_with_right(access: AccessServices, ticket: Ticket, later: _Later, asker: Asker) -> Any:
    def check() -> None:
        code = asker.denial()
        if code:
            ticket.fail(code)

    with access.waiting_calls.holding(asker.instance_id, check):
        check()  # it was asked in a turn before
        return await _waited(ticket, later)
