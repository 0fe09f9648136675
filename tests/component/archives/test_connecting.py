"""Connecting to a tenant's server: within the deadline of the whole connection, however many addresses it has."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from archives import limits, sweeping
from archives.address import Store, open_destination, parse
from archives.relay import Relay
from tests.testkit.https_server import https_server
from tests.testkit.waiting import eventually

LOOPBACK = ip_network("127.0.0.0/8")
SILENT = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
WITHIN_S = 2.0
LATE_S = 1.0
NAME = "db.example.com"


@contextlib.contextmanager
def silent_servers(addresses: Sequence[str]) -> Iterator[int]:
    """Yields a port at which these addresses answer no further connection: their queues are full."""
    with contextlib.ExitStack() as stack:
        port = 0
        for address in addresses:
            listener = stack.enter_context(socket.create_server((address, port), backlog=0))
            port = listener.getsockname()[1]
            # Two connections fill a queue of length 0; that the second one hangs shows it.
            for _ in range(8):
                waiting = stack.enter_context(socket.socket())
                waiting.settimeout(0.2)
                try:
                    waiting.connect((address, port))
                except TimeoutError:
                    break
            else:
                raise AssertionError("the queue is never full")
        yield port


def resolve_to(monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str]) -> None:
    """Stands for a name server of the tenant, whose name has these addresses."""
    original = socket.getaddrinfo

    def answer(host: str, port: int, *arguments: Any, **options: Any) -> list[Any]:
        if host != NAME:
            return original(host, port, *arguments, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def relay_to(port: int) -> Relay:
    return Relay(NAME, port, refused=(), private=(LOOPBACK,), within_s=WITHIN_S, answer_bytes_max=100_000)


def assert_fails_in_time(port: int) -> None:
    began_s = time.monotonic()
    with pytest.raises(OSError), relay_to(port):
        raise AssertionError("nobody answers there")
    assert time.monotonic() - began_s < WITHIN_S + LATE_S


def test_a_name_with_four_silent_addresses_fails_within_the_deadline_of_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_servers(SILENT) as port:
        resolve_to(monkeypatch, SILENT)
        assert_fails_in_time(port)


def test_a_name_that_is_not_resolved_fails_within_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def never_answer(*_: Any, **__: Any) -> list[Any]:
        ended.wait(30)
        return []

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", never_answer)
        assert_fails_in_time(5432)
        ended.set()


def test_a_silent_address_leaves_time_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_servers(SILENT[:3]) as port, socket.create_server((SILENT[3], port)) as listener:
        resolve_to(monkeypatch, SILENT)
        with relay_to(port):
            listener.settimeout(WITHIN_S)
            listener.accept()[0].close()


ENDLESS = (
    b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Name>lake</Name><Prefix></Prefix><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>"
    b"<NextContinuationToken>more</NextContinuationToken>"
    b"<Contents><Key>orders/a/day=2026-01-01/f</Key><Size>1</Size></Contents></ListBucketResult>"
)
LISTED_WITHIN_S = 30.0


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_bucket_that_lists_files_without_an_end_is_cut_off(
    is_slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BUCKET_OPEN_S", WITHIN_S)
    with https_server(tmp_path) as server:
        server.answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(ENDLESS)
        server.answer += ENDLESS
        server.sends_slowly = is_slow
        store = Store(
            address=parse(f"s3://lake/orders?region=eu-central-1&endpoint=https://127.0.0.1:{server.port}"), root="",
            folder="a", access_key_id="key", secret_access_key="secret", private=(LOOPBACK,), ca_file=server.ca_file,
        )  # fmt: skip
        failed: list[OSError] = []

        def sweep() -> None:
            try:
                with open_destination(store) as place:
                    list(sweeping._paths(place))
            except OSError as trouble:
                failed.append(trouble)

        thread = threading.Thread(target=sweep, daemon=True)
        thread.start()
        eventually(lambda: server.requests, what="a listing")
        thread.join(LISTED_WITHIN_S)
        assert not thread.is_alive()
    assert [str(trouble) for trouble in failed] == ["The bucket took more than 2 seconds."]
