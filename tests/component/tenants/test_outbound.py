"""Requests to addresses that tenants name: permitted targets and limits (server-side request forgery)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from tenants import outbound
from tenants.outbound import OutboundFailed, fetch, is_target_allowed, target_of
from tests.testkit.https_server import HttpsServer, https_server

LOOPBACK = (ip_network("127.0.0.0/8"),)
BYTES_MAX = 1_000


@pytest.fixture()
def server(tmp_path: Path, settings: Any) -> Iterator[HttpsServer]:
    """A server with a permitted address."""
    with https_server(tmp_path) as running:
        settings.OUTBOUND_PRIVATE_ADDRESSES = LOOPBACK
        settings.OUTBOUND_CA_FILE = running.ca_file
        yield running


@pytest.mark.parametrize(
    "url",
    [
        "", "keys", "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "https://", "https:///keys",
        "https://user@example.com/", "https://user:password@example.com/", "https://example.com/#part",
        "https://example.com:99999/", "https://example.com:22/", "https://example.com:x/", "https://exa mple.com/",
        "https://example.com/\r\nX: y", "https://ex\u00e4mple.com/", "https://[::1", "https://127.0.0.1/",
        "https://10.0.0.1/", "https://169.254.169.254/latest/meta-data", "https://[::1]/", "https://[::ffff:127.0.0.1]/",
        "https://[fe80::1]/", "https://0.0.0.0/",
    ],
)  # fmt: skip
def test_addresses_that_are_never_asked(url: str) -> None:
    with pytest.raises(OutboundFailed):
        target_of(url)


def test_an_address_by_https_says_where_to_go() -> None:
    assert target_of("https://example.com") == outbound.OutboundTarget("example.com", 443, "/")
    assert target_of("https://EXAMPLE.com:8443/a?b=c") == outbound.OutboundTarget("example.com", 8443, "/a?b=c")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::", "::1", "fe80::1", "fc00::1", "fec0::1",
        "ff02::1", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::",
    ],
)  # fmt: skip
def test_private_addresses_are_not_asked(address: str) -> None:
    assert not is_target_allowed(ip_address(address))


def test_public_addresses_are_asked_and_those_that_the_operator_names_otherwise(settings: Any) -> None:
    for address in ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"):
        assert is_target_allowed(ip_address(address))
    settings.OUTBOUND_PRIVATE_ADDRESSES = (ip_network("10.0.0.0/8"),)
    settings.OUTBOUND_REFUSED_ADDRESSES = (ip_network("93.184.216.0/24"), ip_network("10.9.0.0/16"))
    assert is_target_allowed(ip_address("10.1.2.3"))
    assert is_target_allowed(ip_address("::ffff:10.1.2.3"))
    assert not is_target_allowed(ip_address("10.9.2.3"))
    assert not is_target_allowed(ip_address("192.168.0.1"))
    assert not is_target_allowed(ip_address("93.184.216.34"))


def test_an_existing_document_is_fetched(server: HttpsServer) -> None:
    server.answers({"keys": []})
    assert fetch(server.url, bytes_max=BYTES_MAX) == b'{"keys": []}'
    (request,) = server.requests
    assert request.startswith(b"GET /keys HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in request


def test_a_private_address_is_not_connected_to_though_a_name_leads_there(server: HttpsServer, settings: Any) -> None:
    settings.OUTBOUND_PRIVATE_ADDRESSES = ()
    for host in ("localhost", "127.0.0.1"):
        with pytest.raises(OutboundFailed, match="no public address"):
            fetch(f"https://{host}:{server.port}/", bytes_max=BYTES_MAX)
    assert not server.requests


def test_the_checked_address_is_the_one_connected_to(server: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the resolver's second answer would differ."""
    asked: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(outbound.socket, "getaddrinfo", resolve)
    server.answers({})
    assert fetch(f"https://localhost:{server.port}/", bytes_max=BYTES_MAX) == b"{}"
    assert asked == ["localhost"]


def test_only_permitted_addresses_of_a_name_are_asked(server: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with a public and a private address is fetched from the public one."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 1)) for address in ("10.0.0.1", "127.0.0.1")]
    monkeypatch.setattr(outbound.socket, "getaddrinfo", lambda *_given, **_named: found)
    server.answers({})
    assert fetch(f"https://localhost:{server.port}/", bytes_max=BYTES_MAX) == b"{}"


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "204 No", "404 Not", "500 No"])
def test_nothing_but_200_counts_and_redirects_are_not_followed(server: HttpsServer, status: str) -> None:
    server.answers({}, status, Location=f"https://127.0.0.1:{server.port}/other")
    with pytest.raises(OutboundFailed, match=f"status {status[:3]}"):
        fetch(server.url, bytes_max=BYTES_MAX)
    assert len(server.requests) == 1


def test_an_answer_has_a_largest_size(server: HttpsServer) -> None:
    server.answers("x" * (BYTES_MAX - 2))
    assert len(fetch(server.url, bytes_max=BYTES_MAX)) == BYTES_MAX
    server.answers("x" * (BYTES_MAX - 1))
    with pytest.raises(OutboundFailed, match="more than"):
        fetch(server.url, bytes_max=BYTES_MAX)


def test_an_answer_without_an_end_is_cut(server: HttpsServer) -> None:
    server.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n"
    with pytest.raises(OutboundFailed, match="more than"):
        fetch(server.url, bytes_max=BYTES_MAX)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
    ids=["nothing", "nonsense", "many headers", "a long header"],
)
def test_an_answer_that_is_not_http_is_refused(server: HttpsServer, answer: bytes) -> None:
    server.answer = answer
    with pytest.raises(OutboundFailed, match="no answer"):
        fetch(server.url, bytes_max=BYTES_MAX)


def test_an_answer_compressed_unasked_is_not_unpacked(server: HttpsServer) -> None:
    server.answers({}, Content_Encoding="gzip")
    with pytest.raises(OutboundFailed, match="compressed"):
        fetch(server.url, bytes_max=BYTES_MAX)


@pytest.mark.parametrize("how", ["stalls", "drips"])
def test_a_server_that_takes_its_time_is_left(server: HttpsServer, how: str) -> None:
    if how == "stalls":
        server.stall_until = threading.Event()
    else:
        server.sends_slowly = True
    began_s = time.monotonic()
    with pytest.raises(OutboundFailed, match=r"in time|no answer"):
        fetch(server.url, bytes_max=BYTES_MAX, deadline_s=0.5)
    assert time.monotonic() - began_s < 3


def test_a_resolver_that_takes_its_time_is_left(server: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(outbound.socket, "getaddrinfo", lambda *_given, **_named: goes_on.wait(10) and [])
    with pytest.raises(OutboundFailed, match="in time"):
        fetch(server.url, bytes_max=BYTES_MAX, deadline_s=0.2)
    goes_on.set()


def test_a_certificate_of_nobody_is_refused(server: HttpsServer, settings: Any) -> None:
    settings.OUTBOUND_CA_FILE = ""
    server.answers({})
    with pytest.raises(OutboundFailed, match="certificate"):
        fetch(server.url, bytes_max=BYTES_MAX)
    assert not server.requests


def test_a_certificate_for_another_name_is_refused(server: HttpsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers({})
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
    monkeypatch.setattr(outbound.socket, "getaddrinfo", lambda *_given, **_named: found)
    with pytest.raises(OutboundFailed, match="certificate"):
        fetch(f"https://other.example.com:{server.port}/", bytes_max=BYTES_MAX)


def test_nobody_there_is_no_answer(server: HttpsServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OutboundFailed, match="no answer"):
        fetch(f"https://127.0.0.1:{port}/", bytes_max=BYTES_MAX)
