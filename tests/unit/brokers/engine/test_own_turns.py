"""The broker's own work has one turn in each iteration of the event loop."""

from __future__ import annotations

import asyncio

from brokers.engine.own_turns import OwnTurns
from tests.testkit.turns import counted_turns


async def test_of_many_that_work_one_goes_on_in_each_round_of_the_loop() -> None:
    turns = OwnTurns(asyncio.get_running_loop())
    rounds: list[int] = []
    async with counted_turns() as others:

        async def work() -> None:
            for _ in range(3):
                await turns.take()
                rounds.append(others())

        await asyncio.gather(*(work() for _ in range(10)))
    assert len(set(rounds)) == len(rounds) == 30


async def test_turns_go_round_in_the_order_in_which_they_were_asked_for() -> None:
    turns = OwnTurns(asyncio.get_running_loop())
    order: list[str] = []

    async def work(name: str) -> None:
        for _ in range(2):
            await turns.take()
            order.append(name)

    await asyncio.gather(*(work(name) for name in "abc"))
    assert order == list("abcabc")


async def test_who_is_cancelled_holds_up_nobody() -> None:
    turns = OwnTurns(asyncio.get_running_loop())
    gone = asyncio.create_task(turns.take())
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(1):
        await turns.take()
    assert gone.cancelled()
