"""Requests that take long to work out: done in a task, with the heavy part in a thread, so that nobody else waits."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from brokers.engine.handlers.session import Session


def answer_in_background(session: Session, work: Coroutine[Any, Any, None]) -> None:
    """Runs `work`, which answers on the session's channel. It ends with the connection."""
    task = session.engine.spawn(_contained(session, work))
    task.add_done_callback(lambda _: work.close())  # of a task that is cancelled before its first turn
    session.cancel = task.cancel


async def _contained(session: Session, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # one tenant's request must not take the others' broker down
        session.cancel = None
        session.channel.fail(error)
