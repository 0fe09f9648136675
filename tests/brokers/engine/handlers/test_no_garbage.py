"""What produces, fetches and followers leave behind is freed when the last one lets go of it: a broker that left cycles
would stand still every few seconds while the garbage collector finds them.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.assembly.broker import INTERNAL_LISTENER
from tests.brokers.engine.handlers.test_owing import Pair, pair  # noqa: F401
from tests.support.records import fetch

ROUNDS = 20


@pytest.fixture
def left_behind() -> Iterator[Counter[str]]:
    """Filled by `gc.collect()`: the engine's own objects that only the collector could free."""
    found: Counter[str] = Counter()

    def look(phase: str, _info: object) -> None:
        if phase == "stop":
            types = (type(thing) for thing in gc.garbage)
            found.update(kind.__qualname__ for kind in types if kind.__module__.startswith("brokers.engine."))
            gc.garbage.clear()

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.callbacks.append(look)
    yield found
    gc.callbacks.remove(look)
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def left_each_time(found: Counter[str]) -> list[str]:
    """What brokers of earlier tests leave when they are gone is another matter."""
    return [kind for kind, count in found.items() if count >= ROUNDS - 1]


@pytest.mark.parametrize("isolation", [0, 1])
async def test_a_request_that_was_answered_is_garbage_without_a_collector(
    pair: Pair,  # noqa: F811
    left_behind: Counter[str],
    isolation: int,
) -> None:
    pair.copy()
    reader = await pair.leading.internal_client(CLUSTER_USER)
    await pair.send()
    await pair.answered()
    gc.collect()
    left_behind.clear()
    for offset in range(1, ROUNDS):
        waiting = asyncio.create_task(fetch(reader, "t", offset=offset, max_wait_ms=20_000, isolation=isolation))
        await pair.leading.until(lambda: len(pair.led.waits) == 1)
        await pair.send()
        assert (await pair.answered()).error_code == 0
        assert (await waiting).error_code == 0
    gc.collect()
    assert left_each_time(left_behind) == []


async def test_a_connection_that_was_closed_is_garbage_without_a_collector(
    pair: Pair,  # noqa: F811
    left_behind: Counter[str],
) -> None:
    listener = pair.leading.broker.listeners.get(INTERNAL_LISTENER)
    assert listener is not None
    gc.collect()
    left_behind.clear()
    for _ in range(ROUNDS):
        client = await pair.leading.internal_client(CLUSTER_USER)
        await client.close()
    await pair.leading.until(lambda: len(listener.connections) < ROUNDS)
    gc.collect()
    assert left_each_time(left_behind) == []
