"""Tasks take turns on the event loop, by tenant and by instance, and so does the broker's own work."""

from __future__ import annotations

import asyncio

from brokers.engine.scheduling.accounts import Ownership
from brokers.engine.scheduling.turn_queue import TurnQueue
from tests.testkit.turns import count_turns


async def test_in_each_round_of_the_loop_one_piece_of_all_requests_is_handled() -> None:
    loop = asyncio.get_running_loop()
    turns, rounds, handled = TurnQueue(loop), 0, []

    async def long_request(instance_id: str) -> None:
        for _ in range(5):
            await turns.enqueue(instance_id)
            handled.append(rounds)

    requests = [asyncio.create_task(long_request(f"ins-{number % 4}")) for number in range(12)]
    while not all(request.done() for request in requests):
        await asyncio.sleep(0)
        rounds += 1
    assert len(handled) == len(set(handled)) == 60


async def test_an_instance_with_many_long_requests_waits_as_long_as_one_with_a_single_one() -> None:
    turns, order = TurnQueue(asyncio.get_running_loop()), []

    async def long_request(instance_id: str, pieces: int) -> None:
        for _ in range(pieces):
            await turns.enqueue(instance_id)
            order.append(instance_id)

    many = [long_request("many", 3) for _ in range(20)]
    await asyncio.gather(*many, long_request("one", 3))
    assert order[:6] in (["many", "one"] * 3, ["one", "many"] * 3)


async def test_one_piece_at_a_time_is_served_as_often_as_many_that_are_queued() -> None:
    """An instance that queues its next part after each part does not delay those that queue many, nor they it."""
    turns, served = TurnQueue(asyncio.get_running_loop()), list[str]()

    async def serial() -> None:
        for _ in range(20):
            await turns.enqueue("serial")
            served.append("serial")

    async def queued() -> None:
        await turns.enqueue("many")
        served.append("many")

    await asyncio.gather(*(queued() for _ in range(20)), serial())
    for number in range(4, 36, 2):
        assert abs(served[:number].count("many") - number / 2) <= 1


async def test_a_cancelled_waiter_gives_its_turn_to_the_next() -> None:
    turns = TurnQueue(asyncio.get_running_loop())
    gone, stays = turns.enqueue("a"), turns.enqueue("a")
    gone.cancel()
    await asyncio.wait_for(stays, 5)


async def test_an_instance_that_owes_time_pauses_and_others_do_not_wait_for_it() -> None:
    debts_ms = {"owes": 100, "pays": 0}
    asked: list[str] = []

    def debt_ms(instance_id: str) -> int:
        asked.append(instance_id)
        return debts_ms[instance_id]

    turns = TurnQueue(asyncio.get_running_loop(), debt_ms)
    first, second = turns.enqueue("owes"), turns.enqueue("owes")
    for _ in range(5):
        await asyncio.wait_for(turns.enqueue("pays"), 5)
    later = turns.enqueue("owes")
    assert not any(turn.done() for turn in (first, second, later))
    assert asked.count("owes") == 1  # the debt of a pausing instance is checked once
    debts_ms["owes"] = 0
    await asyncio.wait_for(asyncio.gather(first, second, later), 5)


async def test_a_tenant_with_many_instances_waits_as_long_as_one_with_a_single_one() -> None:
    loop, order = asyncio.get_running_loop(), []
    turns = TurnQueue(loop, ownership=Ownership(lambda instance_id: instance_id.partition(".")[0]))

    async def long_request(instance_id: str, pieces: int) -> None:
        for _ in range(pieces):
            await turns.enqueue(instance_id)
            order.append(instance_id)

    many = [long_request(f"many.{number}", 5) for number in range(8)]
    await asyncio.gather(*many, long_request("one", 20))
    first = order[:20]
    assert 9 <= first.count("one") <= 11
    assert len({instance_id for instance_id in first if instance_id != "one"}) == 8, "its instances take turns too"
    assert not len(turns._accounts)


async def test_an_instance_that_owes_time_keeps_no_other_of_its_tenant_waiting() -> None:
    turns = TurnQueue(
        asyncio.get_running_loop(),
        lambda instance_id: 50 if instance_id == "owes" else 0,
        Ownership(lambda _: "tenant"),
    )
    waiting = turns.enqueue("owes")
    for _ in range(5):
        await asyncio.wait_for(turns.enqueue("pays"), 5)
    assert not waiting.done()


async def test_one_of_many_workers_goes_on_in_each_round_of_the_loop() -> None:
    turns = TurnQueue(asyncio.get_running_loop())
    rounds: list[int] = []
    async with count_turns() as others:

        async def work() -> None:
            for _ in range(3):
                await turns.enqueue()
                rounds.append(others())

        await asyncio.gather(*(work() for _ in range(10)))
    assert len(set(rounds)) == len(rounds) == 30


async def test_turns_go_round_in_the_order_in_which_they_were_asked_for() -> None:
    turns = TurnQueue(asyncio.get_running_loop())
    order: list[str] = []

    async def work(name: str) -> None:
        for _ in range(2):
            await turns.enqueue()
            order.append(name)

    await asyncio.gather(*(work(name) for name in "abc"))
    assert order == list("abcabc")


async def test_a_cancelled_turn_holds_up_nobody() -> None:
    turns = TurnQueue(asyncio.get_running_loop())
    gone = turns.enqueue()
    gone.cancel()
    async with asyncio.timeout(1):
        await turns.enqueue()
    assert gone.cancelled()
