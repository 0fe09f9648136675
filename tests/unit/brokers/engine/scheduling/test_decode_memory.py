"""Each instance has room for some decoded requests."""

from __future__ import annotations

import asyncio
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.scheduling.permits import DELAYED_BYTES_PER_TENANT_MAX, DecodeMemoryLimiter

ROOM_BYTES: Final = 100


async def test_a_request_larger_than_the_room_is_let_in_alone_and_others_wait_in_their_order() -> None:
    limiter = DecodeMemoryLimiter(ROOM_BYTES)
    large = await limiter.acquire("a", 10 * ROOM_BYTES)
    waiting = [asyncio.create_task(limiter.acquire("a", ROOM_BYTES)) for _ in range(2)]
    elsewhere = await asyncio.wait_for(limiter.acquire("b", 1), 5)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    large.release()
    large.release()  # may be repeated
    first = await asyncio.wait_for(waiting[0], 5)
    assert not waiting[1].done()
    first.release()
    (await asyncio.wait_for(waiting[1], 5)).release()
    elsewhere.release()
    assert not limiter._used_bytes and not limiter._waiters


@given(plan=st.lists(st.tuples(st.integers(1, 150), st.booleans()), min_size=1, max_size=12))
def test_no_memory_is_lost_in_any_order_of_permits_and_cancellations(plan: list[tuple[int, bool]]) -> None:
    async def play() -> None:
        limiter = DecodeMemoryLimiter(ROOM_BYTES)
        entering = [asyncio.create_task(limiter.acquire("a", count_bytes)) for count_bytes, _ in plan]
        await asyncio.sleep(0)
        for task, (_, hangs_up) in zip(entering, plan, strict=True):
            if hangs_up:
                task.cancel()
        for task in entering:
            try:
                permit = await asyncio.wait_for(task, 5)
            except asyncio.CancelledError:
                if task.done() and not task.cancelled():
                    task.result().release()
                continue
            permit.release()
        assert not limiter._used_bytes and not limiter._waiters

    asyncio.run(play())


def test_all_instances_of_a_tenant_have_one_limit_for_requests_that_wait() -> None:
    tenants = dict.fromkeys("abcde", "hostile") | {"n": "neighbour"}
    limiter = DecodeMemoryLimiter(tenant_of=lambda instance_id: tenants[instance_id])
    part_bytes = DELAYED_BYTES_PER_TENANT_MAX // 4
    assert [limiter.begin_delay(instance_id, part_bytes) for instance_id in "abcde"] == [True] * 4 + [False]
    assert limiter.begin_delay("n", part_bytes)

    tenants["a"] = "another"  # what it began stays counted where it was
    assert not limiter.begin_delay("a", 1)
    limiter.end_delay("a", part_bytes)
    assert limiter.begin_delay("e", part_bytes)

    for instance_id in "bcden":
        limiter.end_delay(instance_id, part_bytes)
    assert not limiter._delayed_bytes and not limiter._delayed_tenants and not limiter._delayed_bytes_of_tenants
