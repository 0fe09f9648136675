"""The web server in front of Django: refusals are problem documents, and slow clients occupy no thread."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from config.embedded.process import free_port
from config.environment import BASE_DIR
from config.web.lanes import LANES, LIVE
from config.web.limits import (
    BODY_BYTES_MAX,
    BODY_S_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HEAD_S_MAX,
    REQUEST_LINE_BYTES_MAX,
    WAITING_STREAMS_MAX,
)
from tests.testkit.waiting import eventually

APPLICATION = """
import threading, time, wsgiref.util

FILE = {file!r}
released, held = threading.Event(), threading.Semaphore(0)

class Live:
    closed = 0

    def __init__(self, owner, count, size="1"):
        self.live, self.owner, self.left, self.size = self, owner, int(count), int(size)

    def step(self):
        self.left -= 1
        if self.owner == "slow":
            time.sleep(5)
        if self.owner == "broken" and self.left == 1:
            raise ValueError("broken")
        return b"x" * self.size, 0.1 if self.left else None

    def close(self):
        Live.closed += 1

def application(environ, start):
    path, body = environ["PATH_INFO"], environ["wsgi.input"].read()
    if path == "/file":
        start("200 OK", [("Content-Length", {size!r})])
        return environ["wsgi.file_wrapper"](open(FILE, "rb"))
    if path.startswith("/live/"):
        start("200 OK", [])
        return Live(*path.split("/")[2:])
    if path == "/closed":
        body = str(Live.closed).encode()
    if path == "/threads":
        body = str(sum(thread.name.startswith("live-") for thread in threading.enumerate())).encode()
    if path == "/stream":
        start("200 OK", [])
        return (b"x" * 65_536 for _ in range(400))
    if path == "/held":
        held.release()
        released.wait(60)
    if path == "/operator/release":
        released.set()
    body = body or environ.get("HTTP_X_FORWARDED_FOR", "").encode() or b"ok"
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
FILE_BYTES = 20 * 1024 * 1024
GET = b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Server:
    """gunicorn with our settings and an application that never refuses."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        file = folder / "file"
        with file.open("wb") as stream:
            stream.truncate(FILE_BYTES)
        text = APPLICATION.format(file=str(file), size=str(FILE_BYTES))
        (folder / "hello.py").write_text(text, encoding="utf-8")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "gunicorn", "-c", "python:config.web.server", "hello:application",
                "--pythonpath", f"{BASE_DIR},{folder}", "--bind", f"127.0.0.1:{self.port}",
            ],
            cwd=BASE_DIR, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        eventually(self.is_open, within_s=30, what="gunicorn to listen")

    def is_open(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def connect(self, source: str = "127.0.0.1", *, receive_bytes: int | None = None) -> socket.socket:
        client = socket.socket()
        client.settimeout(20)
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.bind((source, 0))
        client.connect(("127.0.0.1", self.port))
        return client

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server of one test."""
    server = Server(folder)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("web"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def port(server: Server) -> int:
    return server.port


def read(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Reads one answer of a connection that the server closes."""
    answer = b""
    while piece := client.recv(65_536):
        answer += piece
    return parsed(answer)


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body


def ask(port: int, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(sent)
        return read(client)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /" + b"x" * REQUEST_LINE_BYTES_MAX + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, "uri_too_long"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: \x7f\r\n\r\n", 400, "bad_request"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413, "body_too_large"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n", 413, "body_too_large"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", 400, "bad_request"),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x00\xc8\x01\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\n\r\n", 417, "expectation_failed"),
    ],
    ids=["line", "header", "control character", "body", "chunked body", "chunk", "version", "TLS", "expectation"],
)
def test_a_request_that_cannot_be_read_is_answered_with_a_problem(
    sent: bytes, status: int, code: str, port: int
) -> None:
    result, headers, body = ask(port, sent)
    problem = json.loads(body)
    assert (result, headers["Content-Type"]) == (status, "application/problem+json")
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["request_id"] == headers["X-Request-Id"]


def test_the_longest_name_of_a_group_fits_into_an_address(port: int) -> None:
    path = b"/api/v1/instances/ins-00000000/groups/" + b"%E4" * 1_024 + b"/offsets?page_token=" + b"x" * 2_048
    assert ask(port, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"Content-Length: %d\r\n\r\n" % BODY_BYTES_MAX + b"x" * BODY_BYTES_MAX,
    ],
    ids=["length", "chunked", "largest"],
)
def test_a_body_reaches_the_application_whole(body: bytes, port: int) -> None:
    status, _, answer = ask(port, b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + body)
    assert (status, answer) == (200, b"hello" if b"he" in body else b"x" * BODY_BYTES_MAX)


def test_a_connection_answers_several_requests_in_their_order(server: Server) -> None:
    with server.connect() as client:
        for number in range(3):
            client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n%d" % number)
        client.sendall(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + GET % b"/last")
        answers = b""
        while piece := client.recv(65_536):
            answers += piece
    *_, headed, last = (one.partition(b"\r\n\r\n")[2] for one in answers.split(b"HTTP/1.1 200 OK"))
    assert (answers.count(b"HTTP/1.1 200 OK"), headed, last) == (5, b"", b"ok")
    assert answers.index(b"\r\n\r\n0") < answers.index(b"\r\n\r\n1") < answers.index(b"\r\n\r\n2")


def test_a_client_that_expects_it_is_asked_for_the_body(server: Server) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as client:
        client.sendall(head % 5)
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"hello")
        assert read(client)[::2] == (200, b"hello")
    assert ask(server.port, head % (BODY_BYTES_MAX + 1))[0] == 413


def test_an_upload_of_300_mb_is_cut_below_2_mib(server: Server) -> None:
    sent, piece = 0, b"x" * 65_536
    with server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while sent < 300 * 1024 * 1024:
                client.sendall(b"10000\r\n" + piece + b"\r\n")
                sent += len(piece)
        except OSError:
            pass
    assert sent < 2 * 1024 * 1024


def test_silent_and_slow_connections_cost_no_thread(server: Server) -> None:
    """More of each kind than there are threads; each sends one more byte while others are answered."""
    beginnings = [b"", b"G", b"GET / HTTP/1.1\r\nHost:", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n"]
    with ExitStack() as opened:
        clients = [opened.enter_context(server.connect("127.0.0.2")) for _ in range(100)]
        for number, client in enumerate(clients):
            client.sendall(beginnings[number % len(beginnings)])
        for client in clients[3::4]:
            client.sendall(b"x")
            began_s = time.monotonic()
            assert ask(server.port, GET % b"/")[0] == 200
            assert time.monotonic() - began_s < 1


def test_an_address_with_too_many_connections_loses_the_stalest(server: Server) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(server.connect("127.0.0.3")) for _ in range(CONNECTIONS_PER_ADDRESS_MAX + 20)]
        assert [client.recv(1) for client in clients[:20]] == [b""] * 20
        other = opened.enter_context(server.connect("127.0.0.3"))
        other.sendall(GET % b"/")
        assert read(other)[0] == 200
        clients[-1].sendall(GET % b"/")
        assert read(clients[-1])[0] == 200


def test_slow_readers_of_files_cost_no_thread(server: Server) -> None:
    threads = sum(lane.threads for lane in LANES)
    with ExitStack() as opened:
        clients = [opened.enter_context(server.connect("127.0.0.4", receive_bytes=4096)) for _ in range(threads + 5)]
        for client in clients:
            client.sendall(GET % b"/file")
        assert all(client.recv(15) == b"HTTP/1.1 200 OK" for client in clients)
        assert ask(server.port, GET % b"/")[0] == 200
        rest = len(clients[0].recv(1))
        while piece := clients[0].recv(1 << 20):
            rest += len(piece)
        assert rest > FILE_BYTES


def test_slow_readers_of_streams_hold_few_threads(server: Server) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(server.connect("127.0.0.5", receive_bytes=4096)) for _ in range(10)]
        for client in clients:
            client.sendall(GET % b"/stream")
        assert all(client.recv(15) == b"HTTP/1.1 200 OK" for client in clients)
        assert ask(server.port, GET % b"/")[0] == 200
        whole = 0
        for client in clients:
            try:
                end = b""
                while piece := client.recv(1 << 20):
                    end = (end + piece)[-5:]
                whole += end == b"0\r\n\r\n"
            except ConnectionResetError:
                pass
    assert 1 <= whole <= WAITING_STREAMS_MAX


def chunks(client: socket.socket) -> bytes:
    """Body of an answer as it was sent, up to the end of its connection."""
    raw = b""
    while part := client.recv(65_536):
        raw += part
    return raw.partition(b"\r\n\r\n")[2]


def closed(server: Server) -> int:
    with server.connect("127.0.0.9") as client:
        client.sendall(GET % b"/closed")
        return int(chunks(client))


def test_live_answers_come_in_parts_and_hold_no_thread_between_them(tmp_path: Path) -> None:
    """Many more of them than the lane has threads; pages are answered meanwhile."""
    with ExitStack() as opened:
        server = opened.enter_context(running(tmp_path))
        clients = [opened.enter_context(server.connect("127.0.0.3")) for _ in range(40)]
        for number, client in enumerate(clients):
            client.sendall(GET % b"/live/tenant-%d/4" % (number % 8))
        with server.connect() as other:
            other.sendall(GET % b"/threads")
            assert int(chunks(other)) <= LIVE.threads
        for client in clients:
            client.settimeout(20)
            assert chunks(client) == b"1\r\nx\r\n" * 4 + b"0\r\n\r\n"
        eventually(lambda: closed(server) == len(clients), what="each of them to be closed once")


def test_a_live_answer_ends_with_its_reader_its_fault_and_the_server(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for path in (b"/live/gone/1000", b"/live/full/1000/200000"):
            with server.connect() as client:
                client.sendall(GET % path)
                assert client.recv(20)
        eventually(lambda: closed(server) == 2, what="readers that left to be noticed")
        with server.connect() as client:
            client.sendall(GET % b"/live/broken/3")
            assert chunks(client) == b"1\r\nx\r\n"
        eventually(lambda: closed(server) == 3, what="a fault to end it")
        with server.connect() as client:
            client.sendall(GET % b"/live/until-the-end/1000")
            assert client.recv(20)
            begun_s = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            chunks(client)
            assert server.process.wait(20) == 0
            assert time.monotonic() - begun_s < 10


def test_slow_steps_of_one_tenant_take_no_turns_of_anothers(tmp_path: Path) -> None:
    with ExitStack() as opened:
        server = opened.enter_context(running(tmp_path))
        for _ in range(10):
            client = opened.enter_context(server.connect("127.0.0.4"))
            client.sendall(GET % b"/live/slow/1000")
        neighbour = opened.enter_context(server.connect())
        neighbour.settimeout(20)
        begun_s = time.monotonic()
        neighbour.sendall(GET % b"/live/neighbour/3")
        assert chunks(neighbour) == b"1\r\nx\r\n" * 3 + b"0\r\n\r\n"
        assert time.monotonic() - begun_s < 5


def test_operators_and_probes_have_threads_that_tenants_cannot_take(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with ExitStack() as opened:
        opened.callback(server.stop)
        tenants = LANES[-1]
        held = [
            opened.enter_context(server.connect(f"127.0.1.{number}"))
            for number in range(1, 4)
            for _ in range(tenants.threads)
        ]
        for client in held:
            client.sendall(GET % b"/held")
        for path in (
            b"/healthz",
            b"/readyz",
            b"/accounts/login/",
            b"/static/a.css",
            b"/operator/",
            b"/operator/release",
        ):
            assert ask(server.port, GET % path)[0] == 200
        assert all(read(client)[0] == 200 for client in held)


def test_one_address_leaves_threads_of_a_lane_to_others(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with ExitStack() as opened:
        opened.callback(server.stop)
        held = [opened.enter_context(server.connect("127.0.0.6")) for _ in range(LANES[-1].threads + 10)]
        for client in held:
            client.sendall(GET % b"/held")
        assert ask(server.port, GET % b"/")[0] == 200
        assert ask(server.port, GET % b"/operator/release")[0] == 200
        assert all(read(client)[0] == 200 for client in held)


def test_a_stop_waits_for_answers_and_not_for_the_silent(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with server.connect() as silent, server.connect() as slow, server.connect() as held:
        slow.sendall(b"GET / HT")
        held.sendall(GET % b"/held")
        assert ask(server.port, GET % b"/operator/")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert silent.recv(1) == b""
        slow.sendall(b"TP/1.1\r\nHost: a\r\n\r\n")
        assert read(slow)[0] == 200
        began_s = time.monotonic()
        assert server.process.wait(10) == 0
        assert time.monotonic() - began_s < 5


@pytest.mark.long("config/web")
def test_a_request_that_does_not_arrive_whole_in_time_is_given_up(server: Server) -> None:
    """Each client sends a byte now and then, which extends nothing."""
    with server.connect("127.0.0.7") as silent, server.connect("127.0.0.7") as head, server.connect() as body:
        head.sendall(b"GET / HTTP/1.1\r\nX: ")
        body.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n")
        began_s = time.monotonic()
        for client, most_s in ((silent, HEAD_S_MAX), (head, HEAD_S_MAX), (body, BODY_S_MAX)):
            answer = trickled(client, b"" if client is silent else b"x", most_s + 5)
            assert most_s - 1 < time.monotonic() - began_s < most_s + 5
            assert (client is silent and answer == b"") or parsed(answer)[0] == 408


def trickled(client: socket.socket, byte: bytes, within_s: float) -> bytes:
    """Sends a byte each half second and returns all that is received."""
    client.settimeout(0.5)
    answer, until_s = b"", time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            piece = client.recv(65_536)
            if not piece:
                return answer
            answer += piece
        except TimeoutError:
            client.sendall(byte)
        except ConnectionResetError:
            return answer
    raise AssertionError("the connection stays open")
