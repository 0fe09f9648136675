"""Long turns of the event loop are counted by instance and call, and memory stays bounded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from brokers.engine.loop_turns import CLUSTER, INSTANCES_MAX, LONG_TURN_S, OTHERS, LoopTurns, timed


def test_short_turns_are_not_counted() -> None:
    turns = LoopTurns()
    turns.record(3, "ins-aaaaaaaa", LONG_TURN_S * 0.99)
    assert (turns.by_api, turns.by_instance, turns.longest_s) == ({}, {}, 0.0)


def test_long_turns_are_counted_by_api_and_instance_and_reported() -> None:
    reported: list[tuple[int, str, float]] = []
    turns = LoopTurns(lambda *turn: reported.append(turn))
    for api_key, instance, spent_s in ((3, "ins-aaaaaaaa", 0.02), (3, None, 0.5), (8, "ins-aaaaaaaa", 0.03)):
        turns.record(api_key, instance, spent_s)
    assert turns.by_api == {3: 2, 8: 1}
    assert turns.by_instance == {"ins-aaaaaaaa": 2, CLUSTER: 1}
    assert (turns.longest_s, turns.longest_of) == (0.5, (3, CLUSTER))
    assert reported == [(3, "ins-aaaaaaaa", 0.02), (3, CLUSTER, 0.5), (8, "ins-aaaaaaaa", 0.03)]


def test_more_instances_than_are_counted_apart_share_a_count() -> None:
    turns = LoopTurns()
    for number in range(INSTANCES_MAX + 5):
        turns.record(3, f"ins-{number:08}", 0.02)
    assert len(turns.by_instance) == INSTANCES_MAX + 1
    assert turns.by_instance[OTHERS] == 5


async def test_each_turn_of_a_coroutine_is_timed_without_what_lies_between() -> None:
    turns: list[float] = []

    async def work() -> str:
        until_s = time.perf_counter() + 0.02
        while time.perf_counter() < until_s:  # blocks the event loop
            pass
        await asyncio.sleep(0.1)
        return "done"

    assert await timed(work(), turns.append) == "done"
    assert len(turns) == 2
    assert turns[0] >= 0.02 > turns[1]


async def test_errors_reach_the_coroutine_and_come_out_of_it() -> None:
    async def work(failing: asyncio.Future[None]) -> None:
        with pytest.raises(ValueError, match="in it"):
            await failing
        raise ValueError("out of it")

    failing = asyncio.get_running_loop().create_future()
    failing.set_exception(ValueError("in it"))
    with pytest.raises(ValueError, match="out of it"):
        await timed(work(failing), lambda _spent_s: None)


async def test_where_a_coroutine_lets_others_in_it_goes_on_in_its_turn() -> None:
    taken: list[int] = []

    async def take() -> None:
        taken.append(1)
        await asyncio.sleep(0)

    async def work() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return "done"

    assert await timed(work(), lambda _spent_s: None, take) == "done"
    assert len(taken) == 3


async def test_a_coroutine_that_is_cancelled_while_it_waits_for_its_turn_ends() -> None:
    ended, never = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def take() -> None:
        await never

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.set()

    async def run() -> None:
        await timed(work(), lambda _spent_s: None, take)

    task = asyncio.ensure_future(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_cancelled_coroutine_ends() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.ensure_future(_as_coroutine(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def _as_coroutine(work: Coroutine[Any, Any, None]) -> None:
    await timed(work, lambda _spent_s: None)


async def test_a_coroutine_that_is_woken_goes_on_in_its_turn() -> None:
    loop = asyncio.get_running_loop()
    woken, turn = loop.create_future(), loop.create_future()
    asked: list[int] = []

    def turn_to_resume() -> asyncio.Future[None] | None:
        asked.append(1)
        return turn if len(asked) == 2 else None

    async def work() -> str:
        await asyncio.sleep(0)
        value = await woken
        await asyncio.sleep(0.001)
        return str(value)

    task = asyncio.create_task(timed(work(), lambda _spent_s: None, None, turn_to_resume))
    await asyncio.sleep(0.01)
    assert asked == [1, 1], "before the first step, and where it lets others in"
    turn.set_result("of no interest")
    await asyncio.sleep(0.01)
    assert not task.done()
    woken.set_result("done")
    assert await task == "done"
    assert asked == [1] * 4


async def test_a_coroutine_that_is_cancelled_in_its_turn_ends() -> None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    ends: list[str] = []

    async def work() -> None:
        try:
            await woken
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    turns = iter([None, loop.create_future()])
    task = asyncio.create_task(timed(work(), lambda _spent_s: None, None, lambda: next(turns)))
    await asyncio.sleep(0)
    woken.set_result(None)
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["cancelled"]


async def test_a_coroutine_that_is_cancelled_before_its_first_turn_does_nothing() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()

    async def work() -> None:
        done.append("begun")

    task = asyncio.create_task(timed(work(), lambda _spent_s: None, None, loop.create_future))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not done
