"""Several routes of one instance: each with its port, addresses, lists and limits; one share of the loop (CKA-8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokers.contract import paths
from brokers.contract.documents import InstanceAck
from brokers.contract.routes import RouteDocument
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.fake_store import FakeEnsemble
from tests.testkit.in_process import InProcessBroker
from tests.testkit.ports import unused_port
from tests.testkit.wire import HOST, TIMEOUT_S, WireClient
from tests.unit.brokers.engine.network.test_proxy_protocol import header

MINE = "ins-aaaaaaaa"
EVERYTHING = MetadataRequest(topics=None)
ELSEWHERE = ("192.0.2.0/24",)


def route(name: str, host: str = HOST, **changes: Any) -> RouteDocument:
    port = unused_port()
    return replace(
        RouteDocument(name=name, security="plaintext", ports={1: port}, endpoints={1: f"{host}:{port}"}), **changes
    )


async def opened(broker: InProcessBroker, *routes: RouteDocument) -> list[int]:
    """Creates an instance with these routes; returns their ports."""
    first = routes[0]
    await broker.create_instance(MINE, routes=routes, endpoints=dict(first.endpoints), ports={})
    return [each.ports[1] for each in routes]


async def ack_of(broker: InProcessBroker) -> InstanceAck:
    """Returns the acknowledgement of the current generation."""
    generation = broker.broker.current.image.instances[MINE].document.generation
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            node = await broker.tree.get(paths.instance_ack(MINE, 1))
            ack = None if node is None else InstanceAck.from_json(node.data)
            if ack is not None and ack.generation == generation:
                return ack
            await asyncio.sleep(0.002)


async def is_served(client: WireClient) -> bool:
    return (await client.call(ApiKey.METADATA, 12, EVERYTHING)).topics is not None


async def test_each_route_names_brokers_by_its_own_addresses(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        routes = route("inside"), route("outside", "kafka.example")
        for port, host in zip(await opened(broker, *routes), (HOST, "kafka.example"), strict=True):
            client = await broker.client(port)
            metadata = await client.call(ApiKey.METADATA, 12, EVERYTHING)
            described = await client.call(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
            for brokers in (metadata.brokers, described.brokers):
                assert [(each.host, each.port) for each in brokers] == [(host, port)]
            answer = await client.call(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g", key_type=0))
            assert answer.error_code != 0 or (answer.host, answer.port) == (host, port)


async def test_a_broker_without_the_clients_route_is_not_named(tmp_path: Path) -> None:
    ensemble = FakeEnsemble()
    other = InProcessBroker(tmp_path / "2", broker_id=2, ensemble=ensemble)
    async with InProcessBroker(tmp_path / "1", ensemble=ensemble) as broker, other:
        both = route("inside", ports={1: unused_port(), 2: unused_port()})
        both = replace(both, endpoints={id: f"{HOST}:{port}" for id, port in both.ports.items()})
        ports = await opened(broker, both, route("outside"))
        await broker.until(lambda: len(broker.broker.current.image.brokers) == 2)
        clients = [await broker.client(port) for port in ports]
        answers = [await client.call(ApiKey.METADATA, 12, EVERYTHING) for client in clients]
        assert [[each.node_id for each in answer.brokers] for answer in answers] == [[1, 2], [1]]


async def test_an_address_in_no_list_is_closed_without_a_byte_and_counted(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        listed, closed = await opened(
            broker, route("here", allow_list=("127.0.0.0/8",)), route("there", allow_list=ELSEWHERE)
        )
        assert await is_served(await broker.client(listed))
        assert await (await broker.client(closed)).is_closed()
        assert broker.broker.listeners.counters.refused == {"allow_list": 1}
        assert broker.broker.accountings.get(MINE) is None or not broker.broker.accountings.get_or_create(MINE).ledger


async def test_strangers_take_no_place_among_the_new_connections_of_the_instance(tmp_path: Path) -> None:
    overrides = {"max.connection.creation.rate.per.instance": "1"}
    async with InProcessBroker(tmp_path, overrides=overrides) as broker:
        closed, served = await opened(broker, route("there", allow_list=ELSEWHERE), route("here"))
        for _ in range(50):
            assert await (await broker.client(closed)).is_closed()
        assert await is_served(await broker.client(served))
        assert broker.broker.listeners.counters.paced == 0


async def test_another_list_is_in_force_at_once_and_on_open_connections(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        first, second = route("here"), route("there")
        ports = await opened(broker, first, second)
        clients = [await broker.client(port) for port in ports]
        assert [await is_served(client) for client in clients] == [True, True]

        await broker.update_instance(MINE, routes=(replace(first, allow_list=ELSEWHERE), second))

        assert await clients[0].is_closed()
        assert await is_served(clients[1])
        assert await (await broker.client(ports[0])).is_closed()
        assert broker.broker.listeners.counters.ended == {"not_allowed": 1}


async def test_a_route_has_no_more_connections_than_it_may_and_leaves_the_others_theirs(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        narrow, wide = await opened(broker, route("narrow", connections_max=2), route("wide"))
        clients = [await broker.client(narrow) for _ in range(3)]
        assert await clients[2].is_closed()
        assert await is_served(await broker.client(wide))
        assert broker.broker.listeners.counters.refused == {"route": 1}


async def test_the_connections_of_an_instance_are_counted_over_all_its_routes(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path, overrides={"max.connections.per.instance": "3"}) as broker:
        ports = await opened(broker, route("one"), route("two"))
        held = [await broker.client(ports[number % 2]) for number in range(3)]
        assert all([await is_served(client) for client in held])
        assert await (await broker.client(ports[0])).is_closed()
        assert await (await broker.client(ports[1])).is_closed()
        assert broker.broker.listeners.counters.refused == {"instance": 2}
        assert [(group.name, group.count) for group in broker.broker.listeners.groups() if group.count] == [(MINE, 3)]


async def test_a_route_that_is_closed_takes_its_connections_along_and_no_others(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        first, second = route("one"), route("two")
        ports = await opened(broker, first, second)
        clients = [await broker.client(port) for port in ports]
        assert all([await is_served(client) for client in clients])

        await broker.update_instance(MINE, routes=(first,))

        assert await clients[1].is_closed()
        assert await is_served(clients[0])
        with pytest.raises(ConnectionRefusedError):
            await WireClient.connect(ports[1])


async def test_the_acknowledgement_says_which_route_is_not_open(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        taken = broker.config.admin_port
        first, blocked = route("one"), route("two", ports={1: taken}, endpoints={1: f"{HOST}:{taken}"})
        await opened(broker, first, blocked)
        ack = await ack_of(broker)
        assert (ack.listening, ack.not_open, ack.unable) == (False, ("two",), None)
        assert ack.error is not None
        assert ack.error.startswith(f"port {taken}: ")
        await broker.update_instance(MINE, routes=(first,))
        ack = await ack_of(broker)
        assert (ack.listening, ack.not_open, ack.error) == (True, (), None)


@pytest.mark.parametrize("security", ["tls", "sasl_tls", "something new"])
async def test_a_route_that_cannot_be_protected_is_not_opened_and_the_others_are(tmp_path: Path, security: str) -> None:
    async with InProcessBroker(tmp_path) as broker:
        ports = await opened(broker, route("one"), route("two", security=security))
        assert await is_served(await broker.client(ports[0]))
        with pytest.raises(ConnectionRefusedError):
            await WireClient.connect(ports[1])
        ack = await ack_of(broker)
        assert ack.unable is not None
        assert ack.unable.startswith("two: ")


async def test_an_instance_without_routes_keeps_its_port_when_the_default_route_is_written_down(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        client = await broker.client(await broker.create_instance(MINE))
        before = broker.broker.current.image.instances[MINE].document
        written = RouteDocument(name="default", security="plaintext", ports=before.ports, endpoints=before.endpoints)
        await broker.update_instance(MINE, routes=(written,))
        assert await is_served(client)


async def proxied(broker: InProcessBroker, port: int, first: bytes) -> WireClient:
    client = await broker.client(port)
    await client.send_raw(first)
    return client


async def test_the_proxys_client_is_who_lists_and_limits_ask_for(tmp_path: Path) -> None:
    overrides = {"max.connections.per.ip": "2"}
    async with InProcessBroker(tmp_path, overrides=overrides) as broker:
        (port,) = await opened(broker, route("balanced", allow_list=ELSEWHERE, proxies=(HOST,)))
        admitted = await proxied(broker, port, header("192.0.2.7"))
        assert await is_served(admitted)
        assert await (await proxied(broker, port, header("198.51.100.7"))).is_closed()
        assert broker.broker.listeners.counters.refused == {"allow_list": 1}
        assert await is_served(await proxied(broker, port, header("192.0.2.7")))
        assert await (await proxied(broker, port, header("192.0.2.7"))).is_closed()
        assert await is_served(await proxied(broker, port, header("192.0.2.8")))
        assert broker.broker.listeners.counters.refused == {"allow_list": 1, "address": 1}


async def test_clients_of_one_ipv6_network_share_the_connections_of_an_address(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path, overrides={"max.connections.per.ip": "2"}) as broker:
        (port,) = await opened(broker, route("balanced", proxies=(HOST,)))
        clients = [await proxied(broker, port, header(f"2001:db8::{number}")) for number in (1, 2)]
        assert all([await is_served(client) for client in clients])
        assert await (await proxied(broker, port, header("2001:db8::3"))).is_closed()
        assert await is_served(await proxied(broker, port, header("2001:db8:0:1::3")))
        assert broker.broker.listeners.counters.refused == {"address": 1}
        await clients[0].close()
        await broker.until(lambda: broker.broker.listeners.count == 2)
        assert await is_served(await proxied(broker, port, header("2001:db8::3")))


async def test_a_listed_proxy_without_a_header_is_closed_and_counted_as_malformed(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        (port,) = await opened(broker, route("balanced", proxies=(HOST,)))
        client = await broker.client(port)
        await client.send(ApiKey.METADATA, 12, EVERYTHING)
        assert await client.is_closed()
        assert (broker.broker.listeners.counters.malformed, broker.broker.listeners.count) == (1, 0)


async def test_a_header_of_who_is_no_listed_proxy_is_a_malformed_request(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        (port,) = await opened(broker, route("direct", proxies=ELSEWHERE))
        assert await (await proxied(broker, port, header("192.0.2.7"))).is_closed()
        assert broker.broker.listeners.counters.malformed == 1
        assert await is_served(await broker.client(port))


async def test_a_header_byte_by_byte_and_a_request_in_its_tail_are_both_read(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        (port,) = await opened(broker, route("balanced", proxies=(HOST,)))
        client = await broker.client(port)
        for byte in header("192.0.2.7", b"\x05\x00\x02ab"):
            await client.send_raw(bytes([byte]))
        assert await is_served(client)
        assert {each.peer_host for each in broker.broker.listeners.get(f"{MINE}/balanced").connections} == {"192.0.2.7"}


async def test_a_proxy_that_says_nothing_loses_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokers.engine.network.connection_handshake.PROXY_HEADER_MS_MAX", 50)
    async with InProcessBroker(tmp_path) as broker:
        (port,) = await opened(broker, route("balanced", proxies=(HOST,)))
        assert await (await broker.client(port)).is_closed()
        assert broker.broker.listeners.counters.ended == {"no_proxy_header": 1}
