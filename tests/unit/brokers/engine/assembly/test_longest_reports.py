"""The longest reports of the admin port about one instance: each takes one short turn of the event loop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from brokers.contract.connections import CONNECTIONS_PER_INSTANCE_MAX
from brokers.contract.usage import USAGE_KEYS_PER_INSTANCE_MAX, ReportHead
from brokers.engine.access.principals import Principal
from brokers.engine.assembly.connection_report import CONNECTIONS_PER_PAGE, close_connection, connections_page
from brokers.engine.assembly.topic_figures import CLIENTS_PER_PAGE, topic_clients, topic_figures
from brokers.engine.handlers.session import Session
from brokers.engine.network import closing
from brokers.engine.network.buffers import FrameBuffers, UnreadBytes
from brokers.engine.network.connection import Connection
from brokers.engine.network.inbound_frames import InboundFrames
from brokers.engine.throttling.usage import UsageAccounting, reports

INSTANCE = "ins-aaaaaaaa"
# Encoded beside each report: the shortest of several runs of both are compared, so that a slow machine slows both. It
# takes 2 to 3 ms of a processor on which a turn should not take 10 ms.
REFERENCE = [["name", number, 1.5, None, "x" * 64] for number in range(2_000)]
REFERENCES_PER_TURN = 4
TRIES = 7
BUFFERS = FrameBuffers(call_soon=lambda call: call())
LONGEST_NAME = "\x00" * 32_767
TOPICS = 10_000


def is_short_turn(make: Callable[[], Any]) -> bool:
    """Returns True if a report is made and encoded in the time that `REFERENCES_PER_TURN` references take."""
    report_s, reference_s = [], []
    for _ in range(TRIES):
        reference_s.append(processor_s(lambda: REFERENCE))
        report_s.append(processor_s(make))
    print(f"report {min(report_s) * 1e3:.1f} ms, reference {min(reference_s) * 1e3:.1f} ms")
    return min(report_s) < REFERENCES_PER_TURN * min(reference_s)


def processor_s(make: Callable[[], Any]) -> float:
    began_s = time.process_time()
    json.dumps(make())
    return time.process_time() - began_s


def connected(number: int, name: str) -> Connection:
    """Returns a connection that has what the report reads, and no socket."""
    connection = Connection.__new__(Connection)
    session = Session.__new__(Session)
    session._client, session.last_client_id, session.route_name = None, name, "default"
    session.principal = Principal(name, INSTANCE)
    session.software = ("x" * 64, "1" * 64)
    connection.number, connection.started_s, connection.peer_host = number, 0.0, "2001:db8::1"
    connection.inbound = InboundFrames(UnreadBytes(), BUFFERS, INSTANCE)
    connection.inbound.frame_count = number
    connection.session = session
    return connection


class Ports:
    """Listeners of one instance with a number of connections."""

    def __init__(self, count: int, name: str, *, is_protected: bool = False) -> None:
        self.loop = SimpleNamespace(time=lambda: 5.0)
        self.ended: list[tuple[int, str]] = []
        connections = dict.fromkeys(connected(number, name) for number in range(count, 0, -1))
        listeners = [SimpleNamespace(connections=connections)]
        self._group = SimpleNamespace(listeners=listeners, is_protected=is_protected)

    def group_of(self, name: str) -> Any:
        return self._group if name == INSTANCE else None

    def close_connection(self, connection: Connection, reason: str) -> None:
        self.ended.append((connection.number, reason))


def page(ports: Any, after: int = 0, instance_id: str = INSTANCE) -> dict[str, Any]:
    return connections_page(ports, instance_id, after=after, started_at_ms=1, now_ms=2)


def test_pages_hold_every_connection_once_in_order() -> None:
    ports = Ports(2 * CONNECTIONS_PER_PAGE + 7, "app")
    numbers: list[int] = []
    after: int | None = 0
    while after is not None:
        answer = page(ports, after)
        numbers += [line[0] for line in answer["connections"]]
        after = answer["next"]
    assert numbers == list(range(1, 2 * CONNECTIONS_PER_PAGE + 8))


def test_a_page_of_all_connections_with_the_longest_names_is_one_short_turn() -> None:
    ports = Ports(CONNECTIONS_PER_INSTANCE_MAX, LONGEST_NAME)
    assert is_short_turn(lambda: page(ports))
    assert max(len(line[3]) for line in page(ports)["connections"]) <= 249


def test_nobody_sees_or_closes_connections_of_another_instance_or_of_the_cluster() -> None:
    ports: Any = Ports(3, "app")
    assert page(ports, instance_id="ins-bbbbbbbb")["connections"] == []
    assert not close_connection(ports, "ins-bbbbbbbb", 2)
    protected: Any = Ports(3, "app", is_protected=True)
    assert page(protected)["connections"] == []
    assert not close_connection(protected, INSTANCE, 2)
    assert close_connection(ports, INSTANCE, 2)
    assert not close_connection(ports, INSTANCE, 9)
    assert (ports.ended, protected.ended) == ([(2, closing.CLOSED_BY_OWNER)], [])


def test_a_page_of_ten_thousand_topics_with_all_counters_is_one_short_turn() -> None:
    usage = UsageAccounting()
    names = tuple(f"team.{number:05}" for number in range(TOPICS))
    for number in range(USAGE_KEYS_PER_INSTANCE_MAX):
        usage.counter(names[number % TOPICS], "user", f"client-{number}", "produce").add(100)
    partition = SimpleNamespace(
        is_leader=True, offline=False, size_bytes=5, high_watermark=9, log_start_offset=2
    )  # fmt: skip
    wanted = SimpleNamespace(target=(1, 2, 3), index=0)
    topics = {
        name.encode(): SimpleNamespace(
            name=name, user_name=name, topic_id=b"\x01" * 16, partitions=(wanted,), config={}
        )
        for name in names
    }
    instance = SimpleNamespace(topics=topics, sorted_names=names)
    accounting = SimpleNamespace(usage=usage, refused_topics=SimpleNamespace(as_json=lambda _now_ms: []))
    services: Any = SimpleNamespace(
        metadata=SimpleNamespace(
            current=SimpleNamespace(image=SimpleNamespace(instances={INSTANCE: instance})), topic_defaults={}
        ),
        storage=SimpleNamespace(table=SimpleNamespace(get=lambda _name, _index: partition)),
        clock=SimpleNamespace(now_ms=lambda: 7),
        accounting=SimpleNamespace(accountings={INSTANCE: accounting}),
    )
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        answer = topic_figures(services, INSTANCE, 1, after=after)
        found += [line[0] for line in answer["topics"]]
        assert all(line[6:] == [1, 5, 7, 100, 0] for line in answer["topics"])
        after = answer["next"]
    assert found == list(names)
    assert is_short_turn(lambda: topic_figures(services, INSTANCE, 1, after=names[TOPICS // 2]))


def clients_page(usage: UsageAccounting, after: int = 0, now_ms: int = 90_000) -> dict[str, Any]:
    accounting: Any = SimpleNamespace(usage=usage)
    return topic_clients(accounting, "orders", after=after, started_at_ms=1, now_ms=now_ms)


def test_the_clients_of_a_topic_come_in_pages_of_one_short_turn_though_all_have_long_names() -> None:
    usage = UsageAccounting()
    for number in range(USAGE_KEYS_PER_INSTANCE_MAX + 1):
        usage.counter("orders", "\U0001f600" * 249, f"{number}" + "\U0001f600" * 240, "produce").add(100)
    usage.counter("", "", "", "stored").add(9)
    found: list[str] = []
    after: int | None = 0
    is_cut = []
    while after is not None:
        answer = clients_page(usage, after)
        found += [row[1] for row in answer["clients"]]
        assert len(answer["clients"]) <= CLIENTS_PER_PAGE
        is_cut.append(answer["is_cut"])
        after = answer["next"]
    assert len(set(found)) == len(found) == USAGE_KEYS_PER_INSTANCE_MAX
    assert is_cut == [False] * (len(is_cut) - 1) + [True]
    assert is_short_turn(lambda: clients_page(usage))
    assert topic_clients(None, "orders", after=0, started_at_ms=1, now_ms=2)["clients"] == []


def confirm_report(usage: UsageAccounting, *, sequence: int, at_ms: int) -> None:
    for part in reports({INSTANCE: usage}, ReportHead(1, 1, sequence, at_ms)):
        part.confirm()


def test_the_last_sight_of_a_client_is_the_report_that_found_it_changed() -> None:
    usage = UsageAccounting()
    counter = usage.counter("orders", "anna", "till", "produce")
    usage.counter("orders", "anna", "never", "consume")
    usage.counter("other", "anna", "till", "produce").add(1)
    counter.add(100)
    assert clients_page(usage)["clients"] == [["anna", "till", "produce", 100, 90_000]], "not reported: just now"
    confirm_report(usage, sequence=1, at_ms=50_000)
    assert clients_page(usage)["clients"] == [["anna", "till", "produce", 100, 50_000]]
    confirm_report(usage, sequence=2, at_ms=60_000)
    assert clients_page(usage)["clients"][0][-1] == 50_000
