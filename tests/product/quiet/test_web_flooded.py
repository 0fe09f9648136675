"""The console beside silent and slow connections, and beside a tenant that requests pages without end."""

from __future__ import annotations

import http.cookiejar
import re
import socket
import statistics
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.testkit.stack import Stack

pytestmark = [pytest.mark.system, pytest.mark.quiet, pytest.mark.timeout(600)]

OF_EACH_KIND = 50
BEGINNINGS = (
    b"",
    b"G",
    b"GET /instances/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999\r\n\r\n",
)
ATTACKER = "127.0.0.2"
ASKED = 7
HEALTH_S_MAX, SIGN_IN_S_MAX, OPERATOR_S_MAX = 0.1, 1.0, 1.0
FLOODING = 16
TIMEOUT_S = 30


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the page after a sign-in is another request."""

    def redirect_request(self, *_args: object) -> None:  # type: ignore[override]
        return None


class Person:
    """A signed-in browser."""

    def __init__(self, root: str, form: str, **fields: str) -> None:
        self.root, self.form, self.fields = root, form, fields
        self.take_form()

    def take_form(self) -> None:
        """Opens a fresh browser with the sign-in form."""
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._browser = urllib.request.build_opener(cookies, _Redirects)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.open(self.form))
        assert token is not None
        self._token = token[1]

    def open(self, path: str, fields: dict[str, str] | None = None) -> str:
        data = None if fields is None else urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(self.root + path, data, {"Referer": self.root + path})
        with self._browser.open(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())

    def sign_in(self) -> None:
        """Sends the form."""
        try:
            self.open(self.form, {"csrfmiddlewaretoken": self._token, **self.fields})
        except urllib.error.HTTPError as answer:
            answer.close()
            assert answer.code == 302, answer.code
        else:
            raise AssertionError("signing in was refused")


@pytest.fixture(scope="module")
def root(stack: Stack) -> str:
    return f"http://127.0.0.1:{stack.http_port}"


@pytest.fixture(scope="module")
def tenant(stack: Stack, root: str) -> Person:
    person = stack.ready["tenant"]
    result = Person(root, "/accounts/login/", login=person["username"], password=person["password"])
    result.sign_in()
    return result


@pytest.fixture(scope="module")
def operator(stack: Stack, root: str) -> Person:
    person = stack.ready["operator"]
    result = Person(root, "/operator/login/", username=person["username"], password=person["password"])
    result.sign_in()
    result.open("/operator/")
    return result


@contextmanager
def slow_connections(port: int) -> Iterator[Callable[[], None]]:
    """Opens 200 connections; returns a call that sends one more byte on each, and reopens closed ones."""
    with ExitStack() as opened:
        clients: list[tuple[socket.socket, bytes]] = []

        def begin(beginning: bytes) -> socket.socket:
            client = opened.enter_context(socket.socket())
            client.settimeout(TIMEOUT_S)
            client.bind((ATTACKER, 0))
            client.connect(("127.0.0.1", port))
            client.sendall(beginning)
            return client

        def go_on() -> None:
            for number, (client, beginning) in enumerate(clients):
                try:
                    client.sendall(b"x" if len(beginning) > 1 else b"")
                except OSError:
                    clients[number] = begin(beginning), beginning

        clients += [(begin(beginning), beginning) for beginning in BEGINNINGS for _ in range(OF_EACH_KIND)]
        yield go_on


@contextmanager
def flood(person: Person, path: str) -> Iterator[None]:
    """Requests one page as one person, always several at a time."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            person.open(path)

    threads = [threading.Thread(target=ask) for _ in range(FLOODING)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def typical_s(ask: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> float:
    """Returns the median duration."""
    durations = []
    for _ in range(ASKED):
        meanwhile()
        began_s = time.monotonic()
        ask()
        durations.append(time.monotonic() - began_s)
    return statistics.median(durations)


def test_two_hundred_slow_connections_delay_nobody(stack: Stack, root: str, tenant: Person, operator: Person) -> None:
    with slow_connections(stack.http_port) as go_on:
        assert typical_s(lambda: operator.open("/healthz"), go_on) <= HEALTH_S_MAX
        assert typical_s(tenant.sign_in, lambda: (go_on(), tenant.take_form())) <= SIGN_IN_S_MAX
        assert typical_s(lambda: operator.open("/operator/"), go_on) <= OPERATOR_S_MAX


def test_a_tenant_who_asks_for_pages_without_an_end_keeps_no_operator_out(tenant: Person, operator: Person) -> None:
    with flood(tenant, "/instances/"):
        assert typical_s(lambda: operator.open("/operator/")) <= OPERATOR_S_MAX
        assert typical_s(lambda: operator.open("/healthz")) <= OPERATOR_S_MAX
