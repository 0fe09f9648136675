"""Connections beyond the rate of their address are kept unread for a while and closed (QUO-52)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract import paths
from brokers.contract.documents import config_change_to_json, config_to_json
from brokers.engine.cluster.tree import Create, Delete, Set
from brokers.engine.network.accept_policy import THROTTLED_PER_INSTANCE_MAX, ThrottledConnections
from brokers.engine.network.admission import ADDRESSES_MAX, COUNTER_EXPIRY_MS, AddressLimit, AddressRates
from quotas.rates import SAMPLE_COUNT, SAMPLE_WIDTH_MS
from tests.testkit.in_process import InProcessBroker
from tests.testkit.wire import HOST, WireClient
from tests.unit.brokers.engine.network.test_proxy_protocol import header
from tests.unit.brokers.engine.network.test_routes import is_served, opened, proxied, route

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
RATE = "connection_creation_rate"
# Burst of an idle address: a window's worth, as in Kafka.
BURST_OF_ONE = SAMPLE_COUNT - 1
ONE_PER_S, FIVE_PER_S = AddressLimit(1, is_own=False), AddressLimit(5, is_own=False)


async def limit(broker: InProcessBroker, address: str | None, per_s: int | None, instance_id: str = MINE) -> None:
    """Sets a limit like AlterClientQuotas, and waits until this broker has it."""
    entity = paths.ip_quota_entity(instance_id, address)
    path = f"/config/{entity}"
    present = await broker.tree.get(path)
    before = broker.broker.current.image.quotas
    body = config_to_json({} if per_s is None else {RATE: str(per_s)})
    write = Create(path, body) if present is None else Delete(path, None) if per_s is None else Set(path, body, None)
    announce = Create(paths.CONFIG_CHANGE_PREFIX, config_change_to_json(entity), sequence=True)
    await broker.tree.commit([write, announce])
    await broker.until(lambda: broker.broker.current.image.quotas is not before)


async def flood(broker: InProcessBroker, port: int, count: int) -> list[WireClient]:
    return [await broker.client(port) for _ in range(count)]


def test_a_window_comes_at_once_and_later_connections_at_the_limit() -> None:
    rates, now_ms = AddressRates(), 50_000
    assert [rates.charge("a", FIVE_PER_S, now_ms) for _ in range(5 * BURST_OF_ONE)] == [0] * 5 * BURST_OF_ONE
    came_in = 0
    for now_ms in range(50_000, 110_000, 20):
        delay_ms = rates.charge("a", FIVE_PER_S, now_ms)
        assert 0 <= delay_ms <= SAMPLE_WIDTH_MS
        came_in += not delay_ms
    assert 5 * 50 <= came_in <= 5 * 61


def test_a_limit_of_none_at_all_lets_nobody_in() -> None:
    assert AddressRates().charge("a", AddressLimit(0, is_own=False), 1) == SAMPLE_WIDTH_MS


def test_a_refused_connection_does_not_count() -> None:
    rates = AddressRates()
    for _ in range(BURST_OF_ONE + 100):
        rates.charge("a", ONE_PER_S, 1_000)
    later_ms = 1_000 + COUNTER_EXPIRY_MS
    assert rates.charge("a", ONE_PER_S, later_ms) == 0


def test_addresses_beyond_the_bound_share_one_counter_until_others_are_forgotten() -> None:
    rates = AddressRates()
    for number in range(ADDRESSES_MAX):
        assert rates.charge(str(number), ONE_PER_S, 1_000) == 0
    beyond = [rates.charge(f"beyond {number}", ONE_PER_S, 1_000) for number in range(BURST_OF_ONE + 1)]
    assert beyond[:-1] == [0] * BURST_OF_ONE
    assert beyond[-1] > 0
    assert len(rates) == ADDRESSES_MAX
    assert rates.charge("another", ONE_PER_S, 1_000 + COUNTER_EXPIRY_MS) == 0
    assert len(rates) < ADDRESSES_MAX


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 2 * ADDRESSES_MAX)), max_size=200))
def test_counters_never_outnumber_the_bound(steps: list[tuple[int, int]]) -> None:
    rates, now_ms = AddressRates(), 0
    for later_ms, number in steps:
        now_ms += later_ms
        rates.charge(str(number), ONE_PER_S, now_ms)
        assert len(rates) <= ADDRESSES_MAX


def test_a_network_of_ipv6_has_one_counter_and_an_address_with_a_limit_of_its_own_another() -> None:
    rates = AddressRates()
    taken = [rates.charge(f"2001:db8::{number:x}", ONE_PER_S, 1_000) for number in range(1, BURST_OF_ONE + 2)]
    assert taken[:-1] == [0] * BURST_OF_ONE
    assert taken[-1] > 0
    assert len(rates) == 1
    assert rates.charge("2001:db8::1", AddressLimit(1, is_own=True), 1_000) == 0
    assert rates.charge("2001:db8:0:1::1", ONE_PER_S, 1_000) == 0
    assert len(rates) == 3


async def test_throttled_connections_per_instance_are_limited() -> None:
    held = ThrottledConnections(asyncio.get_running_loop())
    sockets = [socket.socket() for _ in range(THROTTLED_PER_INSTANCE_MAX + 2)]
    for each in sockets:
        held.add(MINE, each, SAMPLE_WIDTH_MS)
    held.add(THEIRS, other := socket.socket(), SAMPLE_WIDTH_MS)
    assert [each.fileno() >= 0 for each in sockets] == [True] * THROTTLED_PER_INSTANCE_MAX + [False] * 2
    assert (held.count, other.fileno() >= 0) == (THROTTLED_PER_INSTANCE_MAX + 1, True)
    held.close_one()
    assert held.count == THROTTLED_PER_INSTANCE_MAX
    assert other.fileno() >= 0
    held.close_all(MINE)
    held.close_all(THEIRS)
    assert held.count == 0
    assert all(each.fileno() < 0 for each in (*sockets, other))


async def test_an_address_that_opens_too_many_connections_waits_and_is_closed_and_others_are_not(
    tmp_path: Path,
) -> None:
    async with InProcessBroker(tmp_path) as broker:
        port, other_port = [await broker.create_instance(instance_id) for instance_id in (MINE, THEIRS)]
        await limit(broker, HOST, 1)
        listeners = broker.broker.listeners
        clients = await flood(broker, port, BURST_OF_ONE + 2)
        await broker.until(lambda: listeners.policy.throttled.count == 2)
        assert [await is_served(client) for client in clients[:BURST_OF_ONE]] == [True] * BURST_OF_ONE
        (other,) = await flood(broker, other_port, 1)
        assert await is_served(other)

        assert await clients[-1].is_closed()
        assert await clients[-2].is_closed()
        assert listeners.policy.throttled.count == 0
        assert listeners.counters.refused == {"address_rate": 2}
        assert listeners.count == BURST_OF_ONE + 1
        (entry,) = broker.broker.accountings.get_or_create(MINE).ledger.as_json(broker.broker.clock.now_ms())
        assert entry["rule"] == {"kind": "connection_rate", "quota": RATE, "level": None, "entity": {}}
        assert 0 < entry["delay_ms_max"] <= SAMPLE_WIDTH_MS  # type: ignore[operator]


async def test_the_limit_of_an_address_goes_before_that_of_all_and_changes_are_in_force_at_once(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        port = await broker.create_instance(MINE)
        await limit(broker, None, 0)
        (client,) = await flood(broker, port, 1)
        await broker.until(lambda: broker.broker.listeners.policy.throttled.count == 1)
        await limit(broker, HOST, 1_000)
        (client,) = await flood(broker, port, 1)
        assert await is_served(client)
        await limit(broker, HOST, None)
        await limit(broker, None, None)
        assert await is_served((await flood(broker, port, 1))[0])
        assert broker.broker.current.image.quotas.addresses == {}


async def test_a_port_that_closes_ends_who_is_kept_waiting_behind_it(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        port = await broker.create_instance(MINE)
        await limit(broker, None, 0)
        (client,) = await flood(broker, port, 1)
        await broker.until(lambda: broker.broker.listeners.policy.throttled.count == 1)
        broker.broker.listeners.close(MINE)
        assert broker.broker.listeners.policy.throttled.count == 0
        assert await client.is_closed()


async def test_the_proxys_client_is_whose_connections_are_counted(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        (port,) = await opened(broker, route("balanced", proxies=(HOST,)))
        await limit(broker, "192.0.2.7", 0)
        held = await proxied(broker, port, header("192.0.2.7"))
        await broker.until(lambda: broker.broker.listeners.policy.throttled.count == 1)
        assert await is_served(await proxied(broker, port, header("192.0.2.8")))
        assert broker.broker.listeners.count == 1
        assert await held.is_closed()
        assert broker.broker.listeners.counters.refused == {"address_rate": 1}


async def test_clients_of_one_ipv6_network_share_the_limit_of_an_address(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        (port,) = await opened(broker, route("balanced", proxies=(HOST,)))
        await limit(broker, None, 1)
        await limit(broker, "2001:db8::ff", 1)
        clients = [await proxied(broker, port, header(f"2001:db8::{number + 1:x}")) for number in range(BURST_OF_ONE)]
        assert [await is_served(client) for client in clients] == [True] * BURST_OF_ONE
        held = await proxied(broker, port, header("2001:db8::fe"))
        await broker.until(lambda: broker.broker.listeners.policy.throttled.count == 1)
        assert await is_served(await proxied(broker, port, header("2001:db8::ff"))), "it has a limit of its own"
        assert await is_served(await proxied(broker, port, header("2001:db8:0:1::1")))
        assert await held.is_closed()


async def test_a_flood_beyond_the_bound_is_closed_at_once(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        port = await broker.create_instance(MINE)
        await limit(broker, None, 0)
        clients = await flood(broker, port, THROTTLED_PER_INSTANCE_MAX + 20)
        listeners = broker.broker.listeners
        await broker.until(lambda: sum(listeners.counters.refused.values()) == len(clients))
        assert listeners.policy.throttled.count <= THROTTLED_PER_INSTANCE_MAX
        assert listeners.count == 0
