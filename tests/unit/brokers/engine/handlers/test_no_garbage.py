"""Objects of produces, fetches and followers are freed with their last reference: with reference cycles, a broker would
pause every few seconds for the garbage collector.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.assembly.internal_security import INTERNAL_LISTENER
from tests.testkit.records import fetch
from tests.unit.brokers.engine.handlers.test_delayed_produce import Pair, pair  # noqa: F401

ROUNDS = 20
MEASURED_MAX = 3


@pytest.fixture
def left_behind() -> Iterator[Counter[str]]:
    """Counts the engine's objects that only `gc.collect()` could free. Request the fixture before any broker: the first
    collection takes seconds after thousands of tests, and a leader that pauses stops leading.
    """
    counter: Counter[str] = Counter()

    def look(phase: str, _info: object) -> None:
        if phase == "stop":
            types = (type(thing) for thing in gc.garbage)
            counter.update(kind.__qualname__ for kind in types if kind.__module__.startswith("brokers.engine."))
            gc.garbage.clear()

    gc.collect()
    gc.freeze()  # otherwise each collection would examine the objects of thousands of earlier tests
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.callbacks.append(look)
    yield counter
    gc.callbacks.remove(look)
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


async def left_each_time(found: Counter[str], work: Callable[[], Awaitable[object]]) -> set[str]:
    """Returns the kinds of objects that each of `ROUNDS` runs of `work` leaves behind: brokers of earlier tests may be
    collected at any moment as well, but only once.
    """
    kinds: set[str] | None = None
    for _ in range(MEASURED_MAX):
        gc.set_debug(0)  # saved objects are found again by the next collection
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        found.clear()
        await work()
        gc.collect()
        left = {kind for kind, count in found.items() if count >= ROUNDS}
        kinds = left if kinds is None else kinds & left
        if not kinds:
            break
    return kinds or set()


@pytest.mark.parametrize("isolation", [0, 1])
async def test_a_request_that_was_answered_is_garbage_without_a_collector(
    left_behind: Counter[str],
    pair: Pair,  # noqa: F811
    isolation: int,
) -> None:
    pair.copy()
    reader = await pair.leading.internal_client(CLUSTER_USER)
    await pair.send()
    first = await pair.answered()
    assert first.error_code == 0, first
    offsets = itertools.count(1)

    async def send_and_fetch() -> None:
        for offset in itertools.islice(offsets, ROUNDS):
            waiting = asyncio.create_task(fetch(reader, "t", offset=offset, max_wait_ms=20_000, isolation=isolation))
            await pair.leading.until(lambda: len(pair.led.delayed_operations) == 1)
            await pair.send()
            assert (await pair.answered()).error_code == 0
            assert (await waiting).error_code == 0

    assert await left_each_time(left_behind, send_and_fetch) == set()


async def test_a_connection_that_was_closed_is_garbage_without_a_collector(
    left_behind: Counter[str],
    pair: Pair,  # noqa: F811
) -> None:
    listener = pair.leading.broker.listeners.get(INTERNAL_LISTENER)
    assert listener is not None

    async def come_and_go() -> None:
        for _ in range(ROUNDS):
            client = await pair.leading.internal_client(CLUSTER_USER)
            await client.close()
        await pair.leading.until(lambda: len(listener.connections) < ROUNDS)

    assert await left_each_time(left_behind, come_and_go) == set()


async def test_cycles_left_behind_by_each_run_are_found(left_behind: Counter[str]) -> None:
    """The measurement finds cycles that each run leaves behind, and ignores those of a single run."""
    always, once = (type(name, (), {"__module__": "brokers.engine.example"}) for name in ("Always", "Once"))
    kinds = [once]

    async def leave_cycles() -> None:
        for kind in (always, *kinds):
            for _ in range(ROUNDS):
                item = kind()
                item.itself = item
        kinds.clear()

    assert await left_each_time(left_behind, leave_cycles) == {"Always"}
