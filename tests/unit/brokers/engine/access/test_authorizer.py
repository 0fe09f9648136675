"""Allow-lists and instance states (CKA-10, CKA-11, CKA-14): the answer for every combination."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.access.authorizer import Operation, compile_list, decide, owner_address, peer_address

INSIDE = peer_address("10.1.2.3")
OUTSIDE = peer_address("192.168.0.1")


@dataclass(frozen=True)
class Lists:
    produce_ips: tuple[str, ...] = ()
    consume_ips: tuple[str, ...] = ()
    administer_ips: tuple[str, ...] = ()


LISTED = ("10.1.0.0/16",)


@pytest.mark.parametrize(
    ("state", "operation", "address", "expected"),
    [
        ("active", Operation.PRODUCE, INSIDE, 0),
        ("active", Operation.PRODUCE, OUTSIDE, 29),
        ("active", Operation.CONSUME, OUTSIDE, 0),
        ("active", Operation.DESCRIBE, OUTSIDE, 0),
        ("frozen", Operation.PRODUCE, INSIDE, 44),
        ("frozen", Operation.PRODUCE, OUTSIDE, 29),
        ("frozen", Operation.CONSUME, OUTSIDE, 0),
        ("deleting", Operation.PRODUCE, INSIDE, 3),
        ("deleting", Operation.CONSUME, INSIDE, 3),
        ("deleting", Operation.DESCRIBE, INSIDE, 3),
    ],
)
def test_the_state_and_the_produce_list_decide(
    state: str, operation: Operation, address: IPv4Address, expected: int
) -> None:
    assert decide(state, Lists(produce_ips=LISTED), operation, address) == expected


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (Lists(), 0),
        (Lists(produce_ips=LISTED), 29),
        (Lists(consume_ips=LISTED), 29),
        (Lists(produce_ips=LISTED, consume_ips=LISTED), 29),
        (Lists(administer_ips=LISTED), 29),
        (Lists(administer_ips=("192.168.0.1",)), 0),
        (Lists(produce_ips=LISTED, consume_ips=LISTED, administer_ips=("192.168.0.1",)), 0),
    ],
)
@pytest.mark.parametrize("state", ["active", "frozen"])
def test_an_address_that_may_produce_and_consume_may_administer_without_a_list_of_its_own(
    state: str, lists: Lists, expected: int
) -> None:
    """An address that the produce list excludes must not be able to delete the topic either."""
    assert decide(state, lists, Operation.ADMINISTER, OUTSIDE) == expected
    assert decide("deleting", lists, Operation.ADMINISTER, OUTSIDE) == 3


def test_any_right_shows_a_topic() -> None:
    closed, open_to = ("10.1.0.0/16",), ("192.168.0.1",)
    for rights in itertools.product((closed, open_to), repeat=3):
        expected = 0 if open_to in rights else 29
        assert decide("active", Lists(*rights), Operation.DESCRIBE, OUTSIDE) == expected


def test_a_topic_with_no_right_is_not_even_described() -> None:
    closed = Lists(produce_ips=LISTED, consume_ips=LISTED)
    assert decide("active", closed, Operation.DESCRIBE, OUTSIDE) == 29
    assert decide("active", closed, Operation.DESCRIBE, INSIDE) == 0


@pytest.mark.parametrize("state", ["active", "frozen", "deleting"])
@pytest.mark.parametrize("operation", Operation)
def test_an_unknown_topic_has_one_answer(state: str, operation: Operation) -> None:
    """CKA-10: the lookup returns None for a topic of another instance and for one that does not exist."""
    assert decide(state, None, operation, INSIDE) == 3


def test_empty_lists_admit_everybody() -> None:
    for operation, address in itertools.product(Operation, (INSIDE, OUTSIDE, peer_address("2001:db8::1"))):
        assert decide("active", Lists(), operation, address) == 0


@pytest.mark.parametrize("typo", ["10.1.2", "10.1.2.3/33", "everybody", "", "10.1.2.3-9"])
def test_a_list_of_typing_errors_admits_nobody(typo: str) -> None:
    assert decide("active", Lists(produce_ips=(typo,)), Operation.PRODUCE, INSIDE) == 29
    assert decide("active", Lists(produce_ips=(typo, "10.1.2.3")), Operation.PRODUCE, INSIDE) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_a_mapped_address_is_its_ipv4_address(text: str, expected: str) -> None:
    assert peer_address(text) == ip_address(expected)


def test_mapped_networks_are_ipv4_networks() -> None:
    assert compile_list(("::ffff:10.1.0.0/112",)).admits(INSIDE)
    assert not compile_list(("::ffff:10.1.0.0/112",)).admits(OUTSIDE)
    assert not compile_list(("::/0",)).admits(INSIDE)
    assert compile_list(("0.0.0.0/0",)).admits(INSIDE)
    assert not compile_list(("0.0.0.0/0",)).admits(peer_address("2001:db8::1"))


networks = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.integers(0, 32)), st.tuples(st.ip_addresses(v=6), st.integers(0, 128))
).map(lambda pair: f"{pair[0]}/{pair[1]}")


# Few distinct values, so that lists often contain the address and networks contain each other.
near = st.one_of(
    networks,
    st.tuples(st.integers(0, 300), st.integers(20, 32)).map(lambda pair: f"{IPv4Address(pair[0])}/{pair[1]}"),
)


@given(st.lists(near, min_size=1, max_size=8), st.one_of(st.ip_addresses(), st.integers(0, 400).map(IPv4Address)))
def test_compiled_lists_agree_with_the_standard_library(entries: list[str], address: IPv4Address | IPv6Address) -> None:
    """The oracle is the slower `ipaddress`; IPv4-mapped addresses have tests of their own."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return
    parsed = [ip_network(entry, strict=False) for entry in entries]
    if any(net.version == 6 and net.network_address.ipv4_mapped is not None for net in parsed):
        return
    assert compile_list(tuple(entries)).admits(address) == any(address in network for network in parsed)


@given(st.text("0123af:/", max_size=14) | st.text("::::1234f/", min_size=3, max_size=20))
def test_an_entry_of_version_6_means_what_the_standard_library_says_or_nothing(entry: str) -> None:
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        wanted: tuple[list[int], list[int]] = ([], [])
    else:
        wanted = [int(network.network_address)], [int(network.broadcast_address)]
        if network.version == 4 or network.network_address.ipv4_mapped is not None:
            return
    compiled = compile_list((entry,))
    assert (list(compiled.v6[0]), list(compiled.v6[1])) == wanted


@pytest.mark.parametrize("peer", ["192.168.0.1", "::1"])
@pytest.mark.parametrize("operation", Operation)
def test_lists_do_not_shut_out_who_acts_for_the_owner_inside_the_cluster(peer: str, operation: Operation) -> None:
    """Otherwise the owner could not see a topic closed by its own lists, and could not reopen it."""
    closed = Lists(produce_ips=LISTED, consume_ips=LISTED, administer_ips=LISTED)
    assert decide("active", closed, operation, peer_address(peer)) == 29
    assert decide("active", closed, operation, owner_address(peer)) == 0
    assert decide("deleting", closed, operation, owner_address(peer)) == 3
    assert str(owner_address(peer)) == peer
