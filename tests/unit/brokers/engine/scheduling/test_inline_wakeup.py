"""A task that awaits an `InlineWakeup` continues inside the call that begins it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from brokers.engine.loop_turns import timed
from brokers.engine.scheduling.inline_wakeup import InlineWakeup

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work)


async def rounds(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@LOOPS
def test_the_task_runs_until_it_waits_again_before_begin_returns(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        loop, done = asyncio.get_running_loop(), list[str]()
        first, second = InlineWakeup(loop), InlineWakeup(loop)

        async def work() -> None:
            await first
            done.append("first")
            await second
            done.append("second")

        def wake(turn: InlineWakeup) -> None:
            turn.wake()
            seen.append(list(done))

        seen: list[list[str]] = []
        task = asyncio.create_task(work())
        await rounds()
        loop.call_soon(wake, first)
        loop.call_soon(wake, second)
        await task
        assert seen == [["first"], ["first", "second"]]

    run(new_loop, main())


@LOOPS
def test_a_task_that_is_cancelled_gets_the_error_and_begin_does_nothing(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn, ended = InlineWakeup(loop), list[str]()

        async def work() -> None:
            try:
                await turn
            finally:
                ended.append("cleaned up")

        task = asyncio.create_task(work())
        await rounds()
        task.cancel()
        loop.call_soon(turn.wake)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["cleaned up"]
        assert turn.cancelled()

    run(new_loop, main())


@LOOPS
def test_begun_from_within_a_task_the_waiting_one_goes_on_in_the_next_round(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        turn = InlineWakeup(asyncio.get_running_loop())

        async def work() -> None:
            await turn

        task = asyncio.create_task(work())
        await rounds()
        turn.wake()
        assert not task.done()
        await task
        await turn  # it is over: no wait

    run(new_loop, main())


async def test_a_step_that_a_turn_began_asks_for_no_other_turn() -> None:
    loop = asyncio.get_running_loop()
    turn, future = InlineWakeup(loop), loop.create_future()
    asked = steps = 0

    async def work() -> None:
        await turn
        await future

    def turn_to_resume() -> None:
        nonlocal asked
        asked += 1

    def on_turn(_spent_s: float) -> None:
        nonlocal steps
        steps += 1

    task = asyncio.create_task(timed(work(), on_turn, None, turn_to_resume))
    await rounds()
    assert asked == 1, "before the first step"
    loop.call_soon(turn.wake)
    await rounds()
    assert asked == 1
    future.set_result(None)
    await task
    assert (asked, steps) == (2, 3)
