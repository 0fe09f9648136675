"""Members of one group that one event answers: in many iterations of the event loop, with others served in between."""

from __future__ import annotations

import asyncio

import pytest

from brokers.engine.protocol.apis import ApiKey
from tests.unit.brokers.engine.handlers.conftest import House
from tests.unit.brokers.engine.handlers.test_groups import coordinated, join_request
from tests.unit.brokers.engine.handlers.test_woken_fetches import Recorder

MEMBERS = 300
# A version in which a member need not rejoin with the id that it gets.
VERSION = 3


@pytest.fixture
def overrides() -> dict[str, str]:
    return {"group.initial.rebalance.delay.ms": "3000"}


async def test_members_that_join_together_are_answered_in_many_rounds(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await coordinated(house.mine)
    loop, answered, most, is_over = asyncio.get_running_loop(), 0, 0, False
    record = house.broker.broker.services.accounting.loop_turns.record

    def counted(api_key: int, instance_id: str | None, spent_s: float) -> None:
        nonlocal answered
        answered += api_key == ApiKey.JOIN_GROUP
        record(api_key, instance_id, spent_s)

    def each_round(before: int) -> None:
        nonlocal most
        most = max(most, answered - before)
        if not is_over:
            loop.call_soon(each_round, answered)

    monkeypatch.setattr(house.broker.broker.services.accounting, "loop_turns", Recorder(counted))
    clients = [await house.broker.client(house.my_port) for _ in range(MEMBERS)]
    each_round(0)
    for client in clients:
        await client.send(ApiKey.JOIN_GROUP, VERSION, join_request())
    joined = [await client.receive(ApiKey.JOIN_GROUP, VERSION) for client in clients]
    is_over = True
    assert {answer.error_code for answer in joined} == {0}
    assert len({answer.generation_id for answer in joined}) == 1, "one event answered all"
    assert answered >= MEMBERS
    assert most <= MEMBERS * 2 / 3, "others are served in between"
