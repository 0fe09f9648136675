"""A TLS socket behind the calls of a plain one (`tls_stream`): bytes sent in one turn of the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from select import POLLOUT, poll

import pytest

from brokers.engine.network.tls_stream import RECORD_BYTES_MAX, SENT_PER_TURN_MAX, TlsStream
from tests.testkit.tls import client_context, make_certificate
from tests.testkit.wire import HOST

WAITED_S = 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_certificate(directory)
    return directory


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def ends(authority: Path, request: pytest.FixtureRequest) -> Iterator[tuple[TlsStream, ssl.SSLSocket]]:
    """A broker's end of a connection and its client's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "broker.pem")
    with socket.create_server((HOST, 0)) as listener:
        plain = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    client = client_context(authority, version=request.param).wrap_socket(
        plain, server_hostname=HOST, do_handshake_on_connect=False
    )
    client.settimeout(WAITED_S)
    shaking = threading.Thread(target=client.do_handshake)
    shaking.start()
    server = context.wrap_socket(accepted, server_side=True)
    shaking.join(WAITED_S)
    server.setblocking(False)
    loop = asyncio.new_event_loop()
    yield TlsStream(server, loop), client
    loop.close()
    server.close()
    client.close()


def test_a_large_response_is_encrypted_in_bounded_parts(ends: tuple[TlsStream, ssl.SSLSocket]) -> None:
    stream, _ = ends
    count = stream.send(bytes(4 * SENT_PER_TURN_MAX))
    assert 0 < count <= SENT_PER_TURN_MAX


def test_a_slow_reader_gets_everything_in_order(ends: tuple[TlsStream, ssl.SSLSocket]) -> None:
    """The socket is often full in the middle of a record, which TLS then repeats."""
    stream, client = ends
    data = os.urandom(40 * SENT_PER_TURN_MAX + 7)
    received = bytearray()

    def read() -> None:
        while len(received) < len(data):
            received.extend(client.recv(RECORD_BYTES_MAX))

    rest = memoryview(data)
    reader = threading.Thread(target=read)
    refused = 0
    while rest:
        try:
            count = stream.send(rest)
        except BlockingIOError:
            refused += 1
            if refused == 1:
                reader.start()
            writable = poll()
            writable.register(stream.fileno(), POLLOUT)
            assert writable.poll(WAITED_S * 1_000), "the reader makes room"
            continue
        assert 0 < count <= SENT_PER_TURN_MAX
        rest = rest[count:]
    reader.join(WAITED_S)
    assert refused
    assert received == data
