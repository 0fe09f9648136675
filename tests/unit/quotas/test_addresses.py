"""Normal form of an address with a limit on new connections."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.addresses import canonical


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("0000:0000:0000:0000:0000:ffff:255.255.255.255", "255.255.255.255"),
    ],
)
def test_an_address_has_one_spelling(written: str, kept: str) -> None:
    assert canonical(written) == kept


@pytest.mark.parametrize(
    "text", ["", "localhost", "<default>", "10.0.0.0/8", "1", "127.1", "fe80::1%eth0", "1" * 10**6]
)
def test_an_incomplete_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        canonical(text)


@given(st.ip_addresses())
def test_a_spelling_stands_for_itself(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    kept = canonical(str(address))
    assert canonical(kept) == kept
