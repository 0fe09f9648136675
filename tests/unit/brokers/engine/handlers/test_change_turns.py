"""Turns of changes in ZooKeeper: an instance with many changes does not delay another one with a single change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from brokers.engine.cluster.errors import TooManyChanges
from brokers.engine.handlers import change_turns
from brokers.engine.handlers.change_turns import ChangeTurns, TopicsBeingCreated
from brokers.engine.scheduling.accounts import Ownership
from brokers.engine.throttling.request_time import ChangeRate

HOSTILE, NEIGHBOUR = "ins-aaaaaaaa", "ins-bbbbbbbb"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (any condition: there is no event to wait for)
            await asyncio.sleep(0)


class Changes:
    """Changes whose end the test controls; `order` is that of their starts."""

    def __init__(self, turns: ChangeTurns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.running = 0
        self.may_end = asyncio.Event()
        self.now_ms = 0
        self.rates: dict[str, ChangeRate] = {}

    async def change(self, instance_id: str, *, until_ms: int = 60_000) -> None:
        rate = self.rates.setdefault(instance_id, ChangeRate())
        async with self.turns.turn(instance_id, rate, now_ms=lambda: self.now_ms, deadline_ms=until_ms):
            rate.charge(1, self.now_ms)
            self.order.append(instance_id)
            self.running += 1
            await self.may_end.wait()
            self.running -= 1


async def test_one_change_of_a_neighbour_is_among_the_first_beside_hundreds_of_another() -> None:
    changes = Changes(ChangeTurns())
    hostile = [asyncio.create_task(changes.change(HOSTILE)) for _ in range(400)]
    await until(lambda: changes.running == 1)

    neighbour = asyncio.create_task(changes.change(NEIGHBOUR))
    await until(lambda: changes.running == 2)
    changes.may_end.set()
    await asyncio.gather(neighbour, *hostile)

    assert changes.order.index(NEIGHBOUR) == 1
    assert not changes.turns._instances


async def test_places_go_round_among_instances_that_all_want_more() -> None:
    changes = Changes(ChangeTurns())
    names = [f"ins-{number:08}" for number in range(10)]
    tasks = [asyncio.create_task(changes.change(name)) for name in names for _ in range(5)]
    await until(lambda: changes.running == change_turns.CHANGES_AT_ONCE_MAX)
    changes.may_end.set()
    await asyncio.gather(*tasks)

    assert set(changes.order[: len(names) + change_turns.CHANGES_AT_ONCE_MAX - 1]) == set(names)


async def test_one_change_of_a_tenant_goes_before_those_of_eight_instances_of_another() -> None:
    changes = Changes(ChangeTurns(Ownership(lambda name: "honest" if name == NEIGHBOUR else "hostile")))
    hostile = [asyncio.create_task(changes.change(f"ins-{number:08}")) for number in range(9)]
    await until(lambda: changes.running == change_turns.CHANGES_AT_ONCE_MAX)
    neighbour = asyncio.create_task(changes.change(NEIGHBOUR))
    await until(lambda: changes.turns._permits.count_waiters(NEIGHBOUR) == 1)
    changes.may_end.set()
    await asyncio.gather(neighbour, *hostile)

    assert changes.order.index(NEIGHBOUR) <= change_turns.CHANGES_AT_ONCE_MAX + 1


async def test_requests_beyond_those_that_may_wait_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_turns, "REQUESTS_WAITING_MAX", 2)
    changes = Changes(ChangeTurns())
    waiting = [asyncio.create_task(changes.change(HOSTILE)) for _ in range(2)]
    await until(lambda: changes.running == 1)

    with pytest.raises(TooManyChanges, match="try again later"):
        await changes.change(HOSTILE)
    changes.may_end.set()
    await asyncio.gather(changes.change(NEIGHBOUR), *waiting)


async def test_a_change_that_would_wait_too_long_is_refused_with_a_retry_time() -> None:
    changes = Changes(ChangeTurns())
    changes.rates[HOSTILE] = ChangeRate(per_s=1, burst=10)
    changes.rates[HOSTILE].charge(40, 0)

    with pytest.raises(TooManyChanges, match="try again in 30 s"):
        await changes.change(HOSTILE, until_ms=20_000)
    assert changes.order == [] and not changes.turns._instances


async def test_a_turn_that_is_given_up_goes_to_the_next() -> None:
    changes = Changes(ChangeTurns())
    first, second = (asyncio.create_task(changes.change(HOSTILE)) for _ in range(2))
    await until(lambda: changes.running == 1)
    first.cancel()
    changes.may_end.set()

    await second

    assert changes.order == [HOSTILE, HOSTILE]


def test_topics_being_created_are_counted_by_instance() -> None:
    creating = TopicsBeingCreated()
    for name in (f"{HOSTILE}.a", f"{HOSTILE}.b", f"{HOSTILE}.b", f"{NEIGHBOUR}.a", "__consumer_offsets"):
        creating.add(name)
    assert (creating.of_instance(HOSTILE), creating.of_instance(NEIGHBOUR), len(creating)) == (2, 1, 4)

    creating.discard(f"{HOSTILE}.a")
    creating.discard(f"{HOSTILE}.a")

    assert creating.of_instance(HOSTILE) == 1 and f"{HOSTILE}.a" not in creating
