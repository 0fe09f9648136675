"""Results of kazoo reach the event loop, whatever they are and whenever they come."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading

import pytest

from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.zookeeper import ZooKeeperTree

SESSION_TIMEOUT_MS = 4_000
SOON_S = 1.0


@pytest.fixture
async def tree() -> ZooKeeperTree:
    """A tree whose session was never opened."""
    tree = ZooKeeperTree("127.0.0.1:1", session_timeout_ms=SESSION_TIMEOUT_MS)
    tree._client.handler.start()
    return tree


async def test_an_error_that_is_none_of_kazoo_ends_the_request_at_once(tree: ZooKeeperTree) -> None:
    result = tree._client.handler.async_result()
    result.set_exception(struct.error("unpack requires a buffer of 8 bytes"))
    async with asyncio.timeout(SOON_S):
        with pytest.raises(StoreUnavailable, match="buffer of 8 bytes"):
            await tree._await_result(result)


async def test_a_callback_that_fails_holds_up_no_other(tree: ZooKeeperTree) -> None:
    reported, called = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    queue, failure = tree._client.handler.completion_queue, RuntimeError("a watch that fails")

    def fail() -> None:
        raise failure

    for call in (fail, lambda: called.append(1), fail, lambda: called.append(2)):
        queue.put(call)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (called, reported) == ([1, 2], [failure, failure])


async def test_results_after_the_stop_are_set_on_the_event_loop(tree: ZooKeeperTree) -> None:
    """Else the loop is not woken, and the waiting request ends at its timeout."""
    handler, threads = tree._client.handler, []
    result = handler.async_result()
    result.rawlink(lambda _: threads.append(threading.get_ident()))
    handler.stop()
    setting = asyncio.to_thread(result.set, b"")
    async with asyncio.timeout(SOON_S):
        assert (await asyncio.gather(tree._await_result(result), setting))[0] == b""
    assert threads == [threading.get_ident()]


async def test_a_session_without_its_root_is_closed(zookeeper_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread and its session would stay until the process ends."""
    tree = ZooKeeperTree(f"{zookeeper_address}/no-root", session_timeout_ms=SESSION_TIMEOUT_MS)

    async def refuse() -> None:
        raise StoreUnavailable("not authorised")

    monkeypatch.setattr(tree, "_make_chroot", refuse)
    with pytest.raises(StoreUnavailable, match="not authorised"):
        await tree.start()
    is_connected = tree._client.connected
    with contextlib.suppress(Exception):
        await tree.stop()
    assert not is_connected
