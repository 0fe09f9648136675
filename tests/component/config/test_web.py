"""What gunicorn refuses before Django sees it is a problem document, not a page."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from config.embedded.process import free_port
from config.environment import BASE_DIR
from config.supervisor.programs import REQUEST_LINE_BYTES_MAX
from tests.testkit.waiting import eventually

HELLO = """
def application(environ, start):
    start("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """gunicorn with our worker and an application that never refuses."""
    folder, result = tmp_path_factory.mktemp("web"), free_port()
    (folder / "hello.py").write_text(HELLO, encoding="utf-8")
    process = subprocess.Popen(
        [
            sys.executable, "-m", "gunicorn", "hello:application", "--pythonpath", f"{BASE_DIR},{folder}",
            "--bind", f"127.0.0.1:{result}", "--worker-class", "config.web.Worker", "--threads", "2",
            "--limit-request-line", str(REQUEST_LINE_BYTES_MAX), "--no-control-socket",
        ],
        cwd=BASE_DIR, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: is_open(result), within_s=30, what="gunicorn to listen")
        yield result
    finally:
        process.terminate()
        process.wait(20)


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(sent)
        answer = b""
        while piece := client.recv(65_536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /" + b"x" * REQUEST_LINE_BYTES_MAX + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, "uri_too_long"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: \x7f\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x00\xc8\x01\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\n\r\n", 417, "expectation_failed"),
    ],
    ids=["line", "header", "control character", "version", "TLS", "expectation"],
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
