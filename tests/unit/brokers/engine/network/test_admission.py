"""Rate of accepting the connections of one instance, which does not affect others (QUO-50, QUO-51)."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.network.admission import CREATION_BURST_MS, PACED_MS_MAX, Addresses, CreationPace
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.in_process import InProcessBroker

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
EVERYTHING = MetadataRequest(topics=None)


def test_a_second_of_creations_comes_at_once_and_then_they_are_paced() -> None:
    pace, now_ms = CreationPace(100), 50_000
    burst = 100 * CREATION_BURST_MS // 1_000
    assert [pace.charge(now_ms) for _ in range(burst)] == [0] * burst
    accepted = 0
    until_ms = now_ms + 10_000
    while now_ms < until_ms:
        now_ms += max(1, pace.charge(now_ms))
        accepted += 1
    assert 990 <= accepted <= 1_010


def test_nobody_is_kept_out_for_longer_than_a_second_at_a_time() -> None:
    pace = CreationPace(1)
    assert [pace.charge(0) for _ in range(10)][-1] == PACED_MS_MAX


def test_addresses_are_forgotten_with_their_last_connection() -> None:
    addresses = Addresses()
    for _ in range(2):
        addresses.add("192.0.2.1")
    addresses.remove("192.0.2.1")
    assert addresses.count("192.0.2.1") == 1
    addresses.remove("192.0.2.1")
    assert addresses.count("192.0.2.1") == 0
    assert not addresses._count_by_network


async def test_an_instance_that_opens_many_waits_and_others_do_not(tmp_path: Path) -> None:
    overrides = {"max.connection.creation.rate.per.instance": "2"}
    async with InProcessBroker(tmp_path / "paced", overrides=overrides) as broker:
        ports = [await broker.create_instance(instance_id) for instance_id in (MINE, THEIRS)]
        hostile = [await broker.client(ports[0]) for _ in range(6)]
        listener = broker.broker.listeners.get(MINE)
        assert listener is not None
        await broker.until(lambda: len(listener.connections) >= 3)
        assert len(listener.connections) < 6

        other = await broker.client(ports[1])
        assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []

        for client in hostile:
            assert (await client.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []
        (entry,) = broker.broker.accountings.get_or_create(MINE).ledger.as_json(broker.broker.clock.now_ms())
        assert entry["rule"] == {"kind": "connection_rate", "quota": "connection_rate", "level": None, "entity": {}}
        assert (
            broker.broker.accountings.get(THEIRS) is None or not broker.broker.accountings.get_or_create(THEIRS).ledger
        )


async def test_a_connection_that_finds_no_place_in_the_queue_is_refused_by_the_limit_that_is_reached(
    tmp_path: Path,
) -> None:
    overrides = {"max.connections": "4", "max.connection.creation.rate.per.instance": "1"}
    async with InProcessBroker(tmp_path, overrides=overrides) as broker:
        port = await broker.create_instance(MINE)
        listeners = broker.broker.listeners
        for _ in range(10):
            await broker.client(port)
        await broker.until(lambda: sum(listeners.counters.refused.values()) >= 10 - 4)
        assert set(listeners.counters.refused) == {"broker"}


async def test_an_address_has_no_more_connections_of_an_instance_than_it_may(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "one", overrides={"max.connections.per.ip": "2"}) as broker:
        ports = [await broker.create_instance(instance_id) for instance_id in (MINE, THEIRS)]
        clients = [await broker.client(ports[0]) for _ in range(3)]

        assert await clients[2].is_closed()
        other = await broker.client(ports[1])
        assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []
        assert broker.broker.listeners.counters.refused == {"address": 1}
        (entry,) = broker.broker.accountings.get_or_create(MINE).ledger.as_json(broker.broker.clock.now_ms())
        assert (entry["rule"]["kind"], entry["count"]) == ("connection_limit", 1)  # type: ignore[index]
