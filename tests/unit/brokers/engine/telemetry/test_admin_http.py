"""The HTTP server of the admin port: accepted requests, refused requests, and authorization."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from brokers.engine.assembly.admin_server import CONNECTIONS_MAX, REQUEST_TIMEOUT_S, AdminServer
from brokers.engine.telemetry.admin_http import Reply, Request, is_authorized, parse_request, response_bytes
from brokers.engine.telemetry.metrics import Sample, render
from config.embedded.process import free_port


def test_a_request_is_taken_apart() -> None:
    request = parse_request(b"GET /v1/a%20b?since_ms=5&x=1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3cret\r\n\r\n")

    assert request == Request("/v1/a b", {"since_ms": "5", "x": "1"}, "s3cret")
    assert isinstance(request, Request)
    assert (request.number("since_ms", 0), request.number("until_ms", 7)) == (5, 7)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/1.1 x\r\n\r\n", 400),
        (b"\xff\r\n\r\n", 400),
    ],
)
def test_a_request_other_than_get_is_refused(head: bytes, status: int) -> None:
    reply = parse_request(head)

    assert isinstance(reply, Reply)
    assert reply.status == status


@pytest.mark.parametrize(("bearer", "allowed"), [("right", True), ("wrong", False), (None, False), ("", False)])
def test_only_the_secret_opens(bearer: str | None, allowed: bool) -> None:
    assert is_authorized(Request("/", {}, bearer), "right") is allowed


async def test_questions_are_answered_one_per_connection() -> None:
    def answer(request: Request) -> Reply:
        return Reply.json({"path": request.path, "n": request.number("n", 1)})

    port = free_port()
    server = AdminServer(answer)
    await server.start("127.0.0.1", port)

    async def ask(head: bytes) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        whole = await reader.read()
        writer.close()
        await writer.wait_closed()
        first, _, body = whole.partition(b"\r\n\r\n")
        return first.split(b"\r\n")[0], body

    try:
        status, body = await ask(b"GET /x?n=3 HTTP/1.1\r\n\r\n")
        assert (status, json.loads(body)) == (b"HTTP/1.1 200 OK", {"path": "/x", "n": 3})
        assert (await ask(b"GET /x?n=three HTTP/1.1\r\n\r\n"))[0] == b"HTTP/1.1 400 Bad Request"
        assert await ask(b"x" * 20_000) == (b"", b"")
    finally:
        await server.stop()


@pytest.mark.parametrize("fault", [ValueError("of the broker itself"), KeyError("of the broker itself")])
def test_a_fault_of_the_broker_is_logged_and_not_blamed_on_the_caller(fault: Exception) -> None:
    def answer(request: Request) -> Reply:
        raise fault

    with capture_logs() as lines:
        reply = response_bytes(b"GET /x?n=3 HTTP/1.1\r\n\r\n", None, answer)
    assert reply.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"of the broker itself" not in reply
    assert [(line["event"], line["path"], line["exc_info"]) for line in lines] == [
        ("admin_request_failed", "/x", fault)
    ]


SILENT, BEGUN, SLOW_READER = b"", b"GET /x HTTP/1.1\r\nHost: ", b"GET /x HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("sent", [SILENT, BEGUN, SLOW_READER])
@pytest.mark.parametrize("strangers", [CONNECTIONS_MAX, 3 * CONNECTIONS_MAX])
async def test_connections_that_ask_nothing_keep_nobody_out(sent: bytes, strangers: int) -> None:
    """An unknown client holds all connections; each new connection replaces the oldest one."""
    port = free_port()
    server = AdminServer(lambda request: Reply.json({"path": request.path, "more": "x" * (1 << 22)}))
    await server.start("127.0.0.1", port)
    held = []
    try:
        for _ in range(strangers):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(sent)
            await writer.drain()
            held.append((reader, writer))
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            held.append((reader, writer))
            writer.write(b"GET /mine HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(REQUEST_TIMEOUT_S / 2):
                assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    finally:
        await server.stop()
        for _, writer in held:
            writer.transport.abort()


def test_metrics_are_written_as_prometheus_reads_them() -> None:
    samples = [
        Sample("made_up_requests", "counter", "Requests.", 3, (("api", "fetch"),)),
        Sample("made_up_requests", "counter", "Requests.", 4, (("api", "produce"),)),
        Sample("made_up_open", "gauge", "Open.", 1),
    ]

    text = render(lambda: samples).decode()

    assert 'made_up_requests_total{api="fetch"} 3.0' in text
    assert 'made_up_requests_total{api="produce"} 4.0' in text
    assert "# TYPE made_up_open gauge" in text
