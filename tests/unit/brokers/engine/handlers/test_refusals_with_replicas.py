"""Errors after which a producer gives up, with three replicas of the coordinator's partition: they are sent only after
the followers have confirmed the leader (decision 76).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokers.engine.coordinators.settings import TRANSACTIONS_TOPIC
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.handlers.transactional import Transactional, coordinated
from tests.unit.brokers.engine.handlers.trio import Trio, running_trio


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    settings = {
        "transaction_state_log_num_partitions": "1",
        "transaction_state_log_replication_factor": "3",
        "group_initial_rebalance_delay_ms": "0",
    }
    async with running_trio(tmp_path, **settings) as running:
        await running.topic()
        yield running


async def test_a_zombie_is_fenced_and_others_go_on(trio: Trio) -> None:
    await coordinated(trio.clients[1], "tx")
    await trio.until(lambda: trio.leader(TRANSACTIONS_TOPIC) > 0)
    leader = trio.leader(TRANSACTIONS_TOPIC)
    client = trio.clients[leader]
    producer = await Transactional.begin(client, "tx")
    await producer.add(("orders", 0))
    zombie = Transactional(client, "tx", producer.producer_id, producer.producer_epoch + 5)
    other = Transactional(client, "tx", producer.producer_id + 5, 0)
    verify = trio.brokers[leader].broker.services.coordination.verify_transaction
    elsewhere = trio.brokers[trio.followers(TRANSACTIONS_TOPIC)[0]].broker.services.coordination.verify_transaction

    for _ in range(5):
        assert await zombie.end(True) == ErrorCode.PRODUCER_FENCED
        assert await other.end(True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for ask in (verify, elsewhere):
            assert await ask("tx", producer.producer_id, 9, [("orders", 0)]) == {
                ("orders", 0): ErrorCode.PRODUCER_FENCED
            }
            assert await ask("tx", *producer.identity, [("orders", 0)]) == {("orders", 0): 0}
    assert await producer.end(True) == 0
