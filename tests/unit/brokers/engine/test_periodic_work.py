"""Background work of the process (`lifecycle.Periodic`): the broker does not go on without it."""

from __future__ import annotations

import asyncio

import pytest

from brokers.engine.lifecycle import Periodic, Stop

TIMEOUT_S = 10


async def returns() -> None:
    """Ends at once."""


async def raises() -> None:
    raise KeyError("a bug")


async def waits() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(("work", "reason"), [(returns, "ended: returns"), (raises, "failed: KeyError('a bug')")])
async def test_work_that_ends_stops_the_process(work: object, reason: str) -> None:
    stop = Stop()
    periodic = Periodic(stop)
    periodic.spawn(work())  # type: ignore[operator]
    async with asyncio.timeout(TIMEOUT_S):
        await stop.wait()
    assert stop.fault == f"background work {reason}"
    await periodic.stop()


async def test_work_that_is_cancelled_is_no_fault() -> None:
    stop = Stop()
    periodic = Periodic(stop)
    periodic.spawn(waits())
    await asyncio.sleep(0)
    await periodic.stop()
    assert stop.fault is None
