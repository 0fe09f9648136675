"""Long requests take turns by instance, and each instance has room for some (`request_turns`)."""

from __future__ import annotations

import asyncio
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.request_turns import DecodedPlaces, RequestTurns
from brokers.engine.scheduling.accounts import Ownership


async def test_in_each_round_of_the_loop_one_piece_of_all_requests_is_handled() -> None:
    loop = asyncio.get_running_loop()
    turns, rounds, handled = RequestTurns(loop), 0, []

    async def long_request(instance_id: str) -> None:
        for _ in range(5):
            await turns.take(instance_id)
            handled.append(rounds)

    requests = [asyncio.create_task(long_request(f"ins-{number % 4}")) for number in range(12)]
    while not all(request.done() for request in requests):
        await asyncio.sleep(0)
        rounds += 1
    assert len(handled) == len(set(handled)) == 60


async def test_an_instance_with_many_long_requests_waits_as_long_as_one_with_a_single_one() -> None:
    turns, order = RequestTurns(asyncio.get_running_loop()), []

    async def long_request(instance_id: str, pieces: int) -> None:
        for _ in range(pieces):
            await turns.take(instance_id)
            order.append(instance_id)

    many = [long_request("many", 3) for _ in range(20)]
    await asyncio.gather(*many, long_request("one", 3))
    assert order[:6] in (["many", "one"] * 3, ["one", "many"] * 3)


async def test_one_piece_at_a_time_is_served_as_often_as_many_that_are_queued() -> None:
    """An instance that queues its next part after each part does not delay those that queue many, nor they it."""
    turns, served = RequestTurns(asyncio.get_running_loop()), list[str]()

    async def serial() -> None:
        for _ in range(20):
            await turns.take("serial")
            served.append("serial")

    async def queued() -> None:
        await turns.take("many")
        served.append("many")

    await asyncio.gather(*(queued() for _ in range(20)), serial())
    for number in range(4, 36, 2):
        assert abs(served[:number].count("many") - number / 2) <= 1


async def test_who_hangs_up_while_waiting_gives_its_turn_to_the_next() -> None:
    turns = RequestTurns(asyncio.get_running_loop())
    gone, stays = turns.take("a"), turns.take("a")
    gone.cancel()
    await asyncio.wait_for(stays, 5)


async def test_an_instance_that_owes_time_pauses_and_others_do_not_wait_for_it() -> None:
    debts_ms = {"owes": 100, "pays": 0}
    asked: list[str] = []

    def debt_ms(instance_id: str) -> int:
        asked.append(instance_id)
        return debts_ms[instance_id]

    turns = RequestTurns(asyncio.get_running_loop(), debt_ms)
    first, second = turns.take("owes"), turns.take("owes")
    for _ in range(5):
        await asyncio.wait_for(turns.take("pays"), 5)
    later = turns.take("owes")
    assert not any(turn.done() for turn in (first, second, later))
    assert asked.count("owes") == 1  # the debt of a pausing instance is checked once
    debts_ms["owes"] = 0
    await asyncio.wait_for(asyncio.gather(first, second, later), 5)


async def test_a_tenant_with_many_instances_waits_as_long_as_one_with_a_single_one() -> None:
    loop, order = asyncio.get_running_loop(), []
    turns = RequestTurns(loop, ownership=Ownership(lambda instance_id: instance_id.partition(".")[0]))

    async def long_request(instance_id: str, pieces: int) -> None:
        for _ in range(pieces):
            await turns.take(instance_id)
            order.append(instance_id)

    many = [long_request(f"many.{number}", 5) for number in range(8)]
    await asyncio.gather(*many, long_request("one", 20))
    first = order[:20]
    assert 9 <= first.count("one") <= 11
    assert len({instance_id for instance_id in first if instance_id != "one"}) == 8, "its instances take turns too"
    assert not len(turns._accounts)


async def test_an_instance_that_owes_time_keeps_no_other_of_its_tenant_waiting() -> None:
    turns = RequestTurns(
        asyncio.get_running_loop(),
        lambda instance_id: 50 if instance_id == "owes" else 0,
        Ownership(lambda _: "tenant"),
    )
    waiting = turns.take("owes")
    for _ in range(5):
        await asyncio.wait_for(turns.take("pays"), 5)
    assert not waiting.done()


ROOM_BYTES: Final = 100


async def test_a_request_larger_than_the_room_is_let_in_alone_and_others_wait_in_their_order() -> None:
    places = DecodedPlaces(asyncio.get_running_loop(), ROOM_BYTES)
    large = await places.enter("a", 10 * ROOM_BYTES)
    waiting = [asyncio.create_task(places.enter("a", ROOM_BYTES)) for _ in range(2)]
    elsewhere = await asyncio.wait_for(places.enter("b", 1), 5)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    large.leave()
    large.leave()  # may be repeated
    first = await asyncio.wait_for(waiting[0], 5)
    assert not waiting[1].done()
    first.leave()
    (await asyncio.wait_for(waiting[1], 5)).leave()
    elsewhere.leave()
    assert not places._taken_bytes and not places._waiting


@given(plan=st.lists(st.tuples(st.integers(1, 150), st.booleans()), min_size=1, max_size=12))
def test_whoever_comes_and_goes_in_whatever_order_no_room_is_lost(plan: list[tuple[int, bool]]) -> None:
    async def play() -> None:
        places = DecodedPlaces(asyncio.get_running_loop(), ROOM_BYTES)
        entering = [asyncio.create_task(places.enter("a", count_bytes)) for count_bytes, _ in plan]
        await asyncio.sleep(0)
        for task, (_, hangs_up) in zip(entering, plan, strict=True):
            if hangs_up:
                task.cancel()
        for task in entering:
            try:
                place = await asyncio.wait_for(task, 5)
            except asyncio.CancelledError:
                if task.done() and not task.cancelled():
                    task.result().leave()
                continue
            place.leave()
        assert not places._taken_bytes and not places._waiting

    asyncio.run(play())
