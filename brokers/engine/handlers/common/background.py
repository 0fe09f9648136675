"""Background work of requests that take long: a task with its heavy part in a thread or in turns of the event loop.

Other requests are served in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

from brokers.engine.handlers.context import RetainedFrame
from brokers.engine.handlers.session import Session
from brokers.engine.loop_turns import timed
from brokers.engine.throttling.accounting import InstanceAccounting

N = TypeVar("N", str, bytes)
T = TypeVar("T")
# Number of partitions of a long Produce or Fetch that are processed in one turn of the event loop.
PARTITIONS_PER_TURN_MAX: Final = 200


def serve_in_background(
    session: Session,
    work: Coroutine[Any, Any, None],
    on_step: Callable[[Session, float], object] | None = None,
    on_end: Callable[[], object] = lambda: None,
) -> None:
    """Runs `work`, which responds on the session's channel, in a task that is cancelled when the connection closes.

    Its steps are turns of its instance; after each step `on_step` is called with its duration in seconds. `on_end` is
    called at the end in any case.
    """

    def charge_time(spent_s: float) -> None:
        _charge_time(session, spent_s)
        if on_step is not None:
            on_step(session, spent_s)

    _start_task(session, timed(work, charge_time, None, session.turn_to_resume), work, on_end)


def _start_task(
    session: Session, steps: Coroutine[Any, Any, Any], work: Coroutine[Any, Any, None], on_end: Callable[[], object]
) -> None:
    """Runs `steps`, which await `work`, in the task of the session's request."""
    task = session.services.spawn(_fail_channel_on_error(session, steps))

    def on_work_end(_: object) -> None:
        steps.close()  # for a task that is cancelled before its first turn
        work.close()
        on_end()

    task.add_done_callback(on_work_end)
    session.cancel = task.cancel


def _charge_time(session: Session, spent_s: float) -> None:
    """Charges a step to the instance's share of the event loop."""
    now_s = perf_counter()
    session.channel.turns.charge(now_s - spent_s, now_s)


def serve_in_turns(
    session: Session,
    api_key: int,
    client_id: str | None,
    work: Coroutine[Any, Any, None],
) -> None:
    """Runs `work` in the background once the instance's request time is paid, and charges each turn to the instance."""
    _start_task(session, _run_when_paid(session, api_key, client_id, work), work, lambda: None)


async def run_in_turns(session: Session, api_key: int, client_id: str | None, work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work` in turns like `serve_in_turns`, within a task that serves the rest of the request as well."""
    try:
        await _run_when_paid(session, api_key, client_id, work)
    finally:
        work.close()  # in case it has not begun


@contextmanager
def charged_turn(session: Session, api_key: int) -> Iterator[None]:
    """Charges the body, a later part of a request, to the client's request quota."""
    began_s = perf_counter()
    session.begin_turn()
    try:
        yield
    finally:
        session.end_turn()
        ended_s = perf_counter()
        session.channel.turns.charge(began_s, ended_s)
        session.services.accounting.loop_turns.record(api_key, session.principal.instance_id, ended_s - began_s)


async def run_in_converter_thread(
    session: Session, client_id: str | None, work: Callable[[], float], retained_frame: RetainedFrame | None = None
) -> int:
    """Runs `work` in a converter thread. Returns the resulting delay of the client in ms.

    `work` returns the CPU seconds that it used. They are charged to the instance even if its client disconnects, and
    the frame that `work` reads (`retained_frame`) is retained until then. An instance has one converter thread at a
    time, for which it waits until its earlier work is paid.
    """
    services, accounting = session.services, _accounting(session)
    instance_id = session.principal.instance_id
    permit = None
    if accounting is not None and instance_id is not None:
        # Work is charged when it is over; with one thread at a time an instance cannot run up debt in parallel.
        permit = await services.storage.converter_permits.acquire(instance_id, 1)
        try:
            _record_debt(session, accounting, client_id)
            await services.accounting.request_turns.enqueue(instance_id)
        except asyncio.CancelledError:
            permit.release()
            raise
    if retained_frame is not None:
        retained_frame.pin()
    running = services.loop.run_in_executor(services.storage.converters, work)

    def on_work_end(done: asyncio.Future[float]) -> None:
        if retained_frame is not None:
            retained_frame.unpin()
        if permit is not None:
            permit.release()
        if accounting is not None and not done.cancelled() and done.exception() is None:
            accounting.request_time.charge_thread(round(done.result() * 1e6), services.clock.monotonic_ms())
            session.record_time(done.result())

    running.add_done_callback(on_work_end)
    # The task of a client that disconnects is cancelled; the thread runs on, and `on_work_end` handles its end.
    await asyncio.shield(running)
    return 0 if accounting is None else accounting.request_time.charge(0, services.clock.monotonic_ms())


async def _run_when_paid(
    session: Session, api_key: int, client_id: str | None, work: Coroutine[Any, Any, None]
) -> None:
    """Waits until the instance has paid for its request time, then awaits `work` in turns."""
    services, accounting = session.services, _accounting(session)
    if accounting is not None:
        delay_ms = _record_debt(session, accounting, client_id)
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
    instance_id = session.principal.instance_id
    take_turn = (
        None
        if accounting is None or instance_id is None
        else partial(services.accounting.request_turns.enqueue, instance_id)
    )
    await timed(work, partial(_on_turn, session, api_key), take_turn, session.turn_to_resume)


def _record_debt(session: Session, accounting: InstanceAccounting, client_id: str | None) -> int:
    """Returns the time in ms until the instance has paid for its request time, and records it as a throttle delay."""
    clock = session.services.clock
    debt_ms = accounting.request_time.debt_ms(clock.monotonic_ms())
    if debt_ms:
        accounting.record_request_time(debt_ms, session.principal.user, client_id or "", clock.now_ms())
    return debt_ms


def _accounting(session: Session) -> InstanceAccounting | None:
    instance_id = session.principal.instance_id
    return (
        None
        if instance_id is None or session.principal.internal
        else session.services.accounting.accountings.get_or_create(instance_id)
    )


def _on_turn(session: Session, api_key: int, spent_s: float) -> None:
    services, accounting = session.services, _accounting(session)
    _charge_time(session, spent_s)
    if accounting is not None:
        accounting.request_time.charge(round(spent_s * 1e6), services.clock.monotonic_ms())
        session.record_time(spent_s)
    services.accounting.loop_turns.record(api_key, session.principal.instance_id, spent_s)


def split_into_parts(
    topics: Sequence[tuple[N, list[T]]], weigh: Callable[[T], int] = lambda _: 1
) -> Iterator[tuple[list[tuple[N, list[T]]], bool]]:
    """Splits topics with their partitions into parts of `PARTITIONS_PER_TURN_MAX` partitions. Yields each part, and
    True if its first topic continues the last topic of the part before. `weigh` returns the number of partitions that
    a partition counts as.
    """
    part: list[tuple[N, list[T]]] = []
    remaining, is_continuation = PARTITIONS_PER_TURN_MAX, False
    for name, items in topics:
        begin = 0
        while begin < len(items) or not begin:
            if remaining < 1:
                yield part, is_continuation
                part, remaining, is_continuation = [], PARTITIONS_PER_TURN_MAX, begin > 0
            end = begin
            while end < len(items) and remaining > 0:
                remaining -= weigh(items[end])
                end += 1
            part.append((name, items[begin:end]))
            if end == begin:  # a topic without partitions
                remaining -= 1
                break
            begin = end
    if part:
        yield part, is_continuation


async def _fail_channel_on_error(session: Session, work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work`, and closes the connection if it raises an exception."""
    try:
        await work
    except Exception as error:  # one tenant's request must not stop the broker of all tenants
        session.cancel = None
        session.channel.fail(error)
