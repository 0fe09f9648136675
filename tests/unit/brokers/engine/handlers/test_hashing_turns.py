"""Whose password is hashed next."""

from __future__ import annotations

import asyncio

import pytest

from brokers.engine.handlers import hashing_turns
from brokers.engine.handlers.hashing_turns import HashingTurns, TooManyWait


async def test_instances_take_turns_whoever_has_more_to_hash() -> None:
    turns, order = HashingTurns(), list[str]()
    gate = asyncio.Event()

    async def hash_for(instance_id: str) -> None:
        async with turns.turn(instance_id):
            await gate.wait()
            order.append(instance_id)

    noisy = [asyncio.create_task(hash_for("noisy")) for _ in range(5)]
    await asyncio.sleep(0)
    quiet = asyncio.create_task(hash_for("quiet"))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*noisy, quiet)

    assert order.index("quiet") <= 2
    assert order.count("noisy") == 5


async def test_who_gives_up_while_waiting_keeps_nobody_else_out() -> None:
    turns = HashingTurns()
    gate = asyncio.Event()

    async def hash_for(instance_id: str) -> str:
        async with turns.turn(instance_id):
            await gate.wait()
            return instance_id

    first, gone, woken, last = (asyncio.create_task(hash_for(name)) for name in ("a", "a", "b", "c"))
    await asyncio.sleep(0)
    gone.cancel()
    gate.set()
    await first
    woken.cancel()

    assert await last == "c"
    async with asyncio.timeout(1), turns.turn("d"):
        assert turns.waiting("a") == 0


async def test_so_many_of_an_instance_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing_turns, "QUEUED_PER_INSTANCE_MAX", 2)
    turns = HashingTurns()

    async def hash_for(instance_id: str) -> None:
        async with turns.turn(instance_id):
            pass

    async with turns.turn("a"):
        waiting = [asyncio.create_task(hash_for("a")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyWait):
            await hash_for("a")
        other = asyncio.create_task(hash_for("b"))
        await asyncio.sleep(0)
    await asyncio.gather(*waiting, other)
