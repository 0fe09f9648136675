"""HTTP client of a joined agent: one connection, signed requests, no redirects."""

from __future__ import annotations

import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec

from brokers.contract.agent_requests import TIME_HEADER, AgentCredentials, signed_text
from brokers.contract.version import VERSION
from brokers.infra.request_signatures import sign
from brokers.limits import AGENT_ANSWER_BYTES_MAX, AGENT_REQUEST_TIMEOUT_S

NOT_MODIFIED: Final = 304
UNAUTHENTICATED: Final = 401
_DETAIL_CHARS_MAX: Final = 500


class ApiRefused(Exception):
    """The control plane refuses a request; `status` is the HTTP status, `code` that of the problem document."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.status, self.code, self.detail = status, code, detail

    @property
    def is_temporary(self) -> bool:
        """True if the same request may be accepted a moment later."""
        return self.status == 429 or self.status >= 500


class Signer(NamedTuple):
    """Key of the agent's certificate, and its serial number."""

    key: ec.EllipticCurvePrivateKey
    serial: str


class ApiResponse(NamedTuple):
    status: int
    tag: str
    body: Any


class ControlPlaneAddress(NamedTuple):
    """Address of the control plane."""

    is_https: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> ControlPlaneAddress:
        """Returns the address in a URL. Raises `ValueError` for another URL, and for one without TLS unless it is a
        loopback address, because answers contain secrets.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.username:
            raise ValueError(f"{url} is no address such as https://console.example.com")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError(f"{url} is not encrypted. Name an address that begins with https://")
        is_https = parts.scheme == "https"
        return cls(is_https, parts.hostname, parts.port or (443 if is_https else 80), parts.path.rstrip("/"))


class ApiClient:
    """Sends one request at a time; may be used by several threads."""

    def __init__(self, address: ControlPlaneAddress, signer: Signer | None = None) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self._sequence = 0
        self.signer = signer
        # Lead of this machine's clock over the control plane's, as of the last answer.
        self.clock_offset_ms: int | None = None

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, tag: str = "", idempotency_key: str = ""
    ) -> ApiResponse:
        """Returns the answer to a request. `tag` is the ETag for If-None-Match, `idempotency_key` the Idempotency-Key.

        If the connection breaks, the request is sent once more, provided that the connection was open before the call
        (the server may have closed it while it was idle) or that the request has an Idempotency-Key.
        Raises `ApiRefused`; and `OSError`, `HTTPException` or `ValueError` if there is no answer, or an unreadable one.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = ({"If-None-Match": tag} if tag else {}) | (
            {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        )
        with self._lock:
            is_fresh = self._connection is None
            try:
                return self._exchange(method, path, content, headers)
            except (OSError, HTTPException):
                self._close()
                if is_fresh and not idempotency_key:
                    raise
            try:
                return self._exchange(method, path, content, headers)
            except (OSError, HTTPException):
                self._close()
                raise

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, path: str, content: bytes, extra_headers: Mapping[str, str]) -> ApiResponse:
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Accept": "application/json", "User-Agent": f"penstock-agent/{VERSION}", **extra_headers}
        if content:
            headers["Content-Type"] = "application/json"
        if self.signer is not None:
            headers["Authorization"] = self._authorization(self.signer, method, path, content)
        before_s = time.time()
        self._connection.request(method, f"{self._address.prefix}{path}", body=content or None, headers=headers)
        response = self._connection.getresponse()
        raw = response.read(AGENT_ANSWER_BYTES_MAX + 1)
        if len(raw) > AGENT_ANSWER_BYTES_MAX:
            self._close()
            raise ValueError(f"the answer is longer than {AGENT_ANSWER_BYTES_MAX:,} bytes")
        self._update_clock_offset(response, before_s)
        return _parse_response(response, raw)

    def _connect(self) -> HTTPConnection:
        address = self._address
        if address.is_https:
            context = ssl.create_default_context()
            return HTTPSConnection(address.host, address.port, timeout=AGENT_REQUEST_TIMEOUT_S, context=context)
        return HTTPConnection(address.host, address.port, timeout=AGENT_REQUEST_TIMEOUT_S)

    def _authorization(self, signer: Signer, method: str, path: str, content: bytes) -> str:
        self._sequence = max(self._sequence + 1, time.time_ns() // 1_000)
        text = signed_text(method=method, target=path, sequence=self._sequence, body=content)
        signature = sign(signer.key, text)
        return AgentCredentials(serial=signer.serial, sequence=self._sequence, signature=signature).header()

    def _update_clock_offset(self, response: HTTPResponse, before_s: float) -> None:
        time_ms = response.getheader(TIME_HEADER, "")
        if time_ms.isascii() and time_ms.isdigit():
            self.clock_offset_ms = round((before_s + time.time()) / 2 * 1_000 - int(time_ms))


def _parse_response(response: HTTPResponse, raw: bytes) -> ApiResponse:
    tag = response.getheader("ETag", "")
    if response.status == NOT_MODIFIED or 200 <= response.status < 300:
        return ApiResponse(response.status, tag, json.loads(raw) if raw else None)
    code, detail = f"status_{response.status}", ""
    try:
        problem = json.loads(raw)
        code, detail = str(problem["code"]), str(problem.get("detail", ""))[:_DETAIL_CHARS_MAX]
    except (ValueError, KeyError, TypeError):
        detail = "not an answer of Penstock's API"
    raise ApiRefused(response.status, code, detail)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
