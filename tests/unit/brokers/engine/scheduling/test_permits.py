"""Permits are granted by tenant, then by instance, and none is lost or granted twice."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.scheduling.accounts import Ownership
from brokers.engine.scheduling.fair_queue import QueueFull
from brokers.engine.scheduling.permits import Permits

BY_PREFIX = Ownership(lambda instance_id: instance_id.partition(".")[0])


async def queued(permits: Permits, instance_id: str, count: int = 1) -> list[asyncio.Task[None]]:
    """Returns tasks that wait for a permit of the instance."""
    waiting = [asyncio.create_task(permits.acquire(instance_id)) for _ in range(count)]
    await asyncio.sleep(0)
    return waiting


async def granted_in_order(permits: Permits, waiting: dict[str, list[asyncio.Task[None]]]) -> list[str]:
    """Releases one permit after the other; returns the instance whose waiter got each."""
    order = []
    left = {name: list(tasks) for name, tasks in waiting.items()}
    while any(left.values()):
        permits.release()
        await asyncio.sleep(0)
        for name, tasks in left.items():
            granted = [task for task in tasks if task.done()]
            order += [name] * len(granted)
            left[name] = [task for task in tasks if not task.done()]
    return order


async def test_an_instance_with_one_request_is_served_before_the_second_of_an_instance_with_many() -> None:
    permits = Permits(1)
    await permits.acquire("noisy")

    waiting = {"noisy": await queued(permits, "noisy", 5), "quiet": await queued(permits, "quiet")}

    assert (await granted_in_order(permits, waiting)).index("quiet") <= 1


async def test_eight_instances_of_a_tenant_delay_another_tenant_no_longer_than_one_does() -> None:
    permits = Permits(1, BY_PREFIX)
    await permits.acquire("hostile.0")
    waiting = {f"hostile.{number}": await queued(permits, f"hostile.{number}", 5) for number in range(8)}
    waiting["honest.0"] = await queued(permits, "honest.0", 3)

    order = await granted_in_order(permits, waiting)

    assert [place for place, name in enumerate(order) if name == "honest.0"] == [1, 3, 5]


async def test_a_waiter_that_is_cancelled_before_or_after_its_grant_gives_the_permit_to_the_next() -> None:
    permits = Permits(1)
    await permits.acquire("a")
    (gone,), (woken,), (last,) = [await queued(permits, name) for name in ("a", "b", "c")]

    gone.cancel()
    await asyncio.sleep(0)
    permits.release()
    woken.cancel()

    await asyncio.wait_for(last, 1)
    assert permits.count_waiters("a") == permits.count_waiters("b") == 0


async def test_an_instance_with_too_many_waiters_is_refused_and_others_are_not() -> None:
    permits = Permits(1, queued_per_instance_max=2)
    await permits.acquire("a")
    await queued(permits, "a", 2)

    with pytest.raises(QueueFull):
        await permits.acquire("a")

    (other,) = await queued(permits, "b")
    assert not other.done() and permits.count_waiters("b") == 1


@given(
    permits_max=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.sampled_from(("acquire", "release", "cancel")), st.integers(0, 5)), min_size=1, max_size=60
    ),
)
def test_no_permit_is_lost_or_granted_twice(permits_max: int, steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        permits = Permits(permits_max, BY_PREFIX)
        waiting: list[asyncio.Task[None]] = []
        held = 0
        for act, number in steps:
            if act == "acquire":
                waiting.append(asyncio.create_task(permits.acquire(f"{number % 2}.{number}")))
            elif act == "cancel" and waiting:
                waiting[number % len(waiting)].cancel()
            elif act == "release" and held:
                permits.release()
                held -= 1
            for _ in range(3):
                await asyncio.sleep(0)
            held += sum(1 for task in waiting if task.done() and not task.cancelled())
            waiting = [task for task in waiting if not task.done()]
            assert held <= permits_max
            assert held == permits_max or not waiting, "nobody waits while a permit is free"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for _ in range(held):
            permits.release()
        for number in range(permits_max):
            assert not permits.would_wait()
            await permits.acquire(f"{number}.x")
        assert permits.would_wait()

    asyncio.run(run())
