"""Address of a client: only trusted proxies' headers count, and only the entries that they added."""

from __future__ import annotations

import pytest

from config.web.addresses import client_address, neighbourhood, networks

PROXIES = networks("10.0.0.0/24, 127.0.0.1,2001:db8:1::/48")


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("198.51.100.7", "", "198.51.100.7"),
        ("198.51.100.7", "203.0.113.9", "198.51.100.7"),
        ("10.0.0.2", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "192.0.2.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "192.0.2.1, 203.0.113.9, 10.0.0.3,127.0.0.1", "203.0.113.9"),
        ("10.0.0.2", "10.0.0.7, 10.0.0.8", "10.0.0.7"),
        ("10.0.0.2", "", "10.0.0.2"),
        ("10.0.0.2", "192.0.2.1, unknown", "10.0.0.2"),
        ("10.0.0.2", "192.0.2.1, unknown, 10.0.0.3", "10.0.0.3"),
        ("10.0.0.2", "203.0.113.9:4711", "203.0.113.9"),
        ("2001:db8:1::5", "[2001:db8:2::7]:4711", "2001:db8:2::7"),
        ("::ffff:10.0.0.2", "203.0.113.9", "203.0.113.9"),
        ("::ffff:198.51.100.7", "203.0.113.9", "198.51.100.7"),
        ("", "203.0.113.9", ""),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_no_proxys(peer: str, forwarded_for: str, address: str) -> None:
    assert client_address(peer, forwarded_for, PROXIES) == address


def test_without_trusted_proxies_no_header_counts() -> None:
    assert client_address("127.0.0.1", "203.0.113.9", ()) == "127.0.0.1"


def test_only_the_end_of_a_long_list_is_read() -> None:
    assert client_address("10.0.0.2", ",".join(["203.0.113.9"] + ["10.0.0.3"] * 100_000), PROXIES) == "10.0.0.3"


def test_an_ipv6_customer_is_a_network() -> None:
    assert neighbourhood("2001:db8:7:8:9::1") == neighbourhood("2001:db8:7:8::2") == "2001:db8:7:8::/64"
    assert neighbourhood("203.0.113.9") == "203.0.113.9"


def test_an_invalid_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"proxy\.internal"):
        networks("10.0.0.0/24,proxy.internal")
