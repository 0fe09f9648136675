"""Choice of the connection that is closed for a new one."""

from __future__ import annotations

from dataclasses import dataclass

from config.web.connections import Connections
from config.web.deadlines import ConnectionPhase


@dataclass(eq=False)
class One:
    client: str
    phase: ConnectionPhase = ConnectionPhase.HEAD
    since_s: float = 0.0
    is_proxy: bool = False
    buffered_bytes: int = 0


def held(*all_of_them: One) -> Connections[One]:
    result: Connections[One] = Connections(total_max=6, per_address_max=3)
    for one in all_of_them:
        result.add(one)
    return result


def test_a_client_with_too_many_gives_up_its_own_stalest() -> None:
    silent, slow, newcomer = One("a", since_s=5.0), One("a", ConnectionPhase.BODY, since_s=2.0), One("a", since_s=9.0)
    connections = held(One("b"), silent, slow, One("a", ConnectionPhase.WORK), newcomer)
    assert connections.exceeds_limit("a", is_proxy=False)
    assert connections.victim(newcomer) is slow
    idle = One("a", ConnectionPhase.IDLE, since_s=8.0)
    connections.add(idle)
    assert connections.victim(newcomer) is idle


def test_a_client_whose_connections_are_all_at_work_gets_no_more() -> None:
    newcomer = One("a")
    connections = held(*(One("a", ConnectionPhase.WORK) for _ in range(3)), newcomer)
    assert connections.victim(newcomer) is None


def test_a_full_server_takes_from_the_client_that_has_most() -> None:
    many = [One("a", since_s=float(number)) for number in range(3)]
    newcomer = One("d")
    connections = held(*many, One("b"), One("b"), One("c"), newcomer)
    assert connections.exceeds_limit("d", is_proxy=False)
    assert connections.victim(newcomer) is many[0]


def test_a_proxy_may_have_many_and_is_the_last_to_lose_one() -> None:
    proxied = [One("p", ConnectionPhase.IDLE, is_proxy=True) for _ in range(5)]
    connections = held(*proxied)
    assert not connections.exceeds_limit("p", is_proxy=True)
    other, newcomer = One("a"), One("p", is_proxy=True)
    connections.add(other)
    connections.add(newcomer)
    assert connections.exceeds_limit("p", is_proxy=True)
    assert connections.victim(newcomer) is other


def test_a_removed_connection_counts_no_more() -> None:
    one = One("a")
    connections = held(one, One("a"))
    connections.remove(one)
    connections.remove(one)
    assert len(connections) == len(list(connections)) == 1


def test_memory_is_taken_back_from_who_holds_most_of_it() -> None:
    large = One("a", ConnectionPhase.BODY, buffered_bytes=10)
    connections = held(
        One("a", ConnectionPhase.WORK, buffered_bytes=20),
        large,
        One("b", ConnectionPhase.BODY, buffered_bytes=5),
        One("c"),
    )
    assert connections.most_buffered() is large
    connections.remove(large)
    assert (connections.most_buffered() or large).buffered_bytes == 5
