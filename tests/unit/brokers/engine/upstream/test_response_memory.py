"""Memory of responses at a gateway: limited for each instance, and for all instances of a tenant."""

from __future__ import annotations

import asyncio

import pytest

from brokers.engine.upstream.response_memory import ResponseMemory

TENANT_OF = {"ins-a1": "ten-a", "ins-a2": "ten-a", "ins-a3": "ten-a", "ins-b1": "ten-b"}


@pytest.fixture
def memory() -> ResponseMemory:
    return ResponseMemory(TENANT_OF.__getitem__, per_instance_bytes_max=100, per_tenant_bytes_max=150)


async def test_instances_of_a_tenant_share_its_limit_and_no_other_tenant_waits(memory: ResponseMemory) -> None:
    first = await memory.acquire("ins-a1", 100)
    waiting = asyncio.create_task(memory.acquire("ins-a2", 100))
    of_same_instance = asyncio.create_task(memory.acquire("ins-a1", 50))
    (await memory.acquire("ins-b1", 100)).release()
    assert not waiting.done() and not of_same_instance.done()
    first.release()
    first.release()
    second = await asyncio.wait_for(waiting, 5)
    third = await asyncio.wait_for(of_same_instance, 5)
    second.release()
    third.release()
    for instance_id in TENANT_OF:
        (await asyncio.wait_for(memory.acquire(instance_id, 1_000), 5)).release()


async def test_a_client_that_leaves_while_its_tenant_waits_frees_what_its_instance_has(memory: ResponseMemory) -> None:
    first = await memory.acquire("ins-a1", 100)
    waiting = asyncio.create_task(memory.acquire("ins-a2", 100))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.release()
    (await asyncio.wait_for(memory.acquire("ins-a2", 100), 5)).release()
