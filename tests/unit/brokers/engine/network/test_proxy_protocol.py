"""The header in which a load balancer names its client: read to its end and no further (CKA-8)."""

from __future__ import annotations

import ipaddress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.network.proxy_protocol import (
    FIXED_BYTES,
    HEADER_BYTES_MAX,
    SIGNATURE,
    VARIABLE_BYTES_MAX,
    NotProxyHeader,
    missing_bytes,
    read_client_address,
)

TCP4, TCP6 = 0x11, 0x21


def header(client: str, extra: bytes = b"", *, version_command: int = 0x21) -> bytes:
    address = ipaddress.ip_address(client)
    family = TCP4 if address.version == 4 else TCP6
    rest = address.packed * 2 + pack(">HH", 40_000, 9_092) + extra
    return pack(">12sBBH", SIGNATURE, version_command, family, len(rest)) + rest


def read(stream: bytes) -> tuple[bytes, bytes]:
    """Reads like a connection; returns the header, and the rest of the stream."""
    received = b""
    while count := missing_bytes(received):
        assert len(received) + count <= HEADER_BYTES_MAX
        if not stream:
            raise EOFError
        received, stream = received + stream[:count], stream[count:]
    return received, stream


@given(st.ip_addresses(), st.binary(max_size=VARIABLE_BYTES_MAX - 36), st.binary(max_size=50))
def test_the_client_is_known_and_what_follows_is_left_to_it(
    client: ipaddress.IPv4Address | ipaddress.IPv6Address, extra: bytes, request: bytes
) -> None:
    received, left = read(header(str(client), extra) + request)
    mapped = getattr(client, "ipv4_mapped", None)
    assert (read_client_address(received), left) == (str(mapped or client), request)


@given(st.binary(max_size=2_000) | st.binary(max_size=600).map(lambda rest: SIGNATURE + rest))
def test_no_more_than_536_bytes_of_any_stream_are_kept(stream: bytes) -> None:
    """The result is a header, an error, or the end of the stream: never another exception, and never a byte more."""
    try:
        received, _ = read(stream)
        client = read_client_address(received)
    except (NotProxyHeader, EOFError):
        return
    assert len(received) <= HEADER_BYTES_MAX == 536
    assert client is None or ipaddress.ip_address(client)


@given(st.data())
def test_a_header_torn_anywhere_is_the_same_header(data: st.DataObject) -> None:
    whole = header("192.0.2.7", b"\x04\x00\x01x")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    received = b""
    for end in [*cuts, len(whole)]:
        while len(received) < end:
            received += whole[len(received) : min(end, len(received) + missing_bytes(received))]
    assert (missing_bytes(received), read_client_address(received)) == (0, "192.0.2.7")


def test_the_longest_header_is_read_and_one_byte_more_is_refused() -> None:
    longest = header("192.0.2.7", bytes(VARIABLE_BYTES_MAX - 12))
    assert len(longest) == HEADER_BYTES_MAX
    assert read_client_address(longest) == "192.0.2.7"
    with pytest.raises(NotProxyHeader, match="537 bytes"):
        missing_bytes(header("192.0.2.7", bytes(VARIABLE_BYTES_MAX - 11))[:FIXED_BYTES])


@pytest.mark.parametrize("version_command", [0x20, 0x2F, 0x11, 0x31, 0x22])
def test_a_proxy_that_speaks_for_itself_is_no_client_and_other_versions_are_refused(version_command: int) -> None:
    made = header("192.0.2.7", version_command=version_command)
    if version_command == 0x20:
        assert read_client_address(made) is None
    else:
        with pytest.raises(NotProxyHeader):
            read_client_address(made)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"PROXY TCP4 192.0.2.7", bytes(16), b"\r\n\r\n\x00\r\nQUIX"])
def test_a_stream_without_a_header_is_detected_by_its_first_wrong_byte(start: bytes) -> None:
    with pytest.raises(NotProxyHeader):
        missing_bytes(start[:12])


@pytest.mark.parametrize(("family", "rest_bytes"), [(TCP4, 11), (TCP6, 35), (0x31, 215), (0x12, 12), (0x99, 12)])
def test_addresses_that_are_not_whole_or_of_no_stream_are_refused(family: int, rest_bytes: int) -> None:
    with pytest.raises(NotProxyHeader):
        read_client_address(pack(">12sBBH", SIGNATURE, 0x21, family, rest_bytes) + bytes(rest_bytes))
