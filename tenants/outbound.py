"""Requests from our machines to addresses given by tenants: only https, only to public addresses.

Resolved addresses are checked, and the connection goes to exactly a checked address, so that DNS rebinding has no
effect. Redirects are not followed. Sizes and times are limited, regardless of the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from types import MappingProxyType
from typing import Final
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from tenants.errors import Message, gettext_noop
from tenants.limits import OUTBOUND_ADDRESSES_TRIED_MAX, OUTBOUND_DEADLINE_S

HTTPS_PORT: Final = 443
# Lower ports belong to services other than HTTPS, which could be abused.
UNPRIVILEGED_PORT_MIN: Final = 1024
OK: Final = 200
IPV4: Final = 4
READ_CHUNK_BYTES: Final = 16_384
USER_AGENT: Final = "Penstock"
_NO_ADDRESS: Final = Message(gettext_noop("The host has no public address."))
# Networks that embed an IPv4 address, to which a gateway may lead.
_TRANSLATED: Final = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))

IPAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class OutboundFailed(Exception):
    """The request failed. `detail` is shown to the user who gave the address, and reveals nothing about our network."""

    def __init__(self, detail: Message) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class OutboundTarget:
    """Target of a request. The server's certificate must be valid for `host`; `path` includes the query."""

    host: str
    port: int
    path: str


def target_of(url: str) -> OutboundTarget:
    """Parses and checks a URL without network access.

    Raises:
        OutboundFailed: requests to such a URL are never made.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or HTTPS_PORT
    except ValueError:
        raise OutboundFailed(Message(gettext_noop("It is not a URL."))) from None
    _check_form(url, parts)
    if port != HTTPS_PORT and port < UNPRIVILEGED_PORT_MIN:
        raise OutboundFailed(
            Message(
                gettext_noop("The port must be %(port)s or at least %(least)s."),
                port=HTTPS_PORT,
                least=UNPRIVILEGED_PORT_MIN,
            )
        )
    host = parts.hostname or ""
    literal = _literal(host)
    if literal is not None and not is_target_allowed(literal):
        raise OutboundFailed(_NO_ADDRESS)
    path = parts.path or "/"
    return OutboundTarget(host, port, f"{path}?{parts.query}" if parts.query else path)


def _check_form(url: str, parts: SplitResult) -> None:
    if parts.scheme != "https":
        raise OutboundFailed(Message(gettext_noop("The address must begin with https://.")))
    if not parts.hostname or not url.isascii() or any(character <= " " for character in url):
        raise OutboundFailed(Message(gettext_noop("It is not a URL.")))
    if "@" in parts.netloc or parts.fragment:
        raise OutboundFailed(Message(gettext_noop("The address must have neither a user nor a fragment.")))


def is_target_allowed(address: IPAddress) -> bool:
    """True if our machines may connect to an address given by a tenant.

    The operator's settings have precedence: first refused networks, then private ones that are allowed.
    """
    return is_allowed(address, settings.OUTBOUND_REFUSED_ADDRESSES, settings.OUTBOUND_PRIVATE_ADDRESSES)


def is_allowed(address: IPAddress, refused: Iterable[Network], private: Iterable[Network]) -> bool:
    """Implements `is_target_allowed` without access to Django's settings."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in refused):
        return False
    if any(address in network for network in private):
        return True
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    if isinstance(address, IPv4Address):
        return True
    return not address.is_site_local and not any(address in network for network in _TRANSLATED)


def digest_of(url: str) -> str:
    """Returns a short key for a URL, for caches."""
    return hashlib.sha256(url.encode()).hexdigest()


def fetch(url: str, *, bytes_max: int, deadline_s: float = OUTBOUND_DEADLINE_S) -> bytes:
    """Sends a GET request, and returns the body of a response with status 200, within about `deadline_s` seconds.

    Raises:
        OutboundFailed: another status, no response, a body of more than `bytes_max`, or a URL that is not allowed.
    """
    request = _Request(target_of(url), bytes_max, time.monotonic() + deadline_s)
    _run(request, deadline_s)
    if request.status != OK:
        raise OutboundFailed(
            Message(
                gettext_noop("It answered with status %(status)s; redirects are not followed."), status=request.status
            )
        )
    return request.body


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """Response with any status."""

    status: int
    body: bytes


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    bytes_max: int,
    deadline_s: float = OUTBOUND_DEADLINE_S,
    is_whole: bool = False,
) -> OutboundResponse:
    """Sends a POST request with a document and returns the response, within about `deadline_s` seconds.

    At most `bytes_max` bytes of the response are read. `is_whole` reads a response of status 200 to its end, fails if
    it is longer, and returns no body for other statuses; otherwise the beginning of the body suffices.

    Raises:
        OutboundFailed: no response, or the address is not allowed.
    """
    request = _Request(target_of(url), bytes_max, time.monotonic() + deadline_s, body, headers, is_whole)
    _run(request, deadline_s)
    return OutboundResponse(request.status, request.body)


def _run(request: _Request, deadline_s: float) -> None:
    # A separate thread, because neither the resolver nor a server that sends slowly observes our deadline.
    worker = threading.Thread(target=request.run, name="outbound", daemon=True)
    worker.start()
    worker.join(deadline_s)
    if worker.is_alive():
        request.abandon()
        raise OutboundFailed(Message(gettext_noop("There was no answer in time.")))
    if request.failure is not None:
        raise request.failure


class _Connection(http.client.HTTPConnection):
    """HTTP connection over a given socket that never opens another one."""

    default_port = HTTPS_PORT
    auto_open = 0


class _Request:
    """One GET request, or a POST with a document. `abandon` cancels it from another thread."""

    def __init__(
        self,
        target: OutboundTarget,
        bytes_max: int,
        deadline_s: float,
        document: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        is_whole: bool = False,
    ) -> None:
        self.body = b""
        self.status = 0
        self._document = document
        self._is_whole = is_whole or document is None
        self._headers = {
            "Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT, **headers
        }  # fmt: skip
        self.failure: OutboundFailed | None = None
        self._target = target
        self._bytes_max = bytes_max
        self._deadline_s = deadline_s
        self._socket: socket.socket | None = None
        self._is_abandoned = False

    def run(self) -> None:
        try:
            self._exchange()
        except OutboundFailed as failure:
            self.failure = failure
        except ssl.SSLCertVerificationError:
            self.failure = OutboundFailed(
                Message(gettext_noop("Its certificate is not from an authority that is trusted here."))
            )
        except ssl.SSLError:
            self.failure = OutboundFailed(Message(gettext_noop("It does not speak TLS.")))
        except (OSError, http.client.HTTPException, ValueError):
            self.failure = OutboundFailed(Message(gettext_noop("There was no answer.")))

    def abandon(self) -> None:
        self._is_abandoned = True
        current = self._socket
        if current is not None:
            with contextlib.suppress(OSError):
                current.shutdown(socket.SHUT_RDWR)

    def _exchange(self) -> None:
        plain = self._connect(_addresses(self._target))
        with plain, _context().wrap_socket(plain, server_hostname=self._target.host) as encrypted:
            self._set_socket(encrypted)
            connection = _Connection(self._target.host, self._target.port)
            connection.sock = encrypted
            method = "GET" if self._document is None else "POST"
            connection.request(method, self._target.path, body=self._document, headers=self._headers)
            with connection.getresponse() as response:
                self.status = response.status
                if self._is_whole:
                    self.body = self._whole(response) if response.status == OK else b""
                else:
                    self.body = response.read1(self._bytes_max)

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        if response.getheader("Content-Encoding", "identity") != "identity":
            raise OutboundFailed(Message(gettext_noop("Its answer is compressed, which was not asked for.")))
        body = bytearray()
        while part := response.read1(READ_CHUNK_BYTES):
            body += part
            if len(body) > self._bytes_max:
                raise OutboundFailed(Message(gettext_noop("Its answer has more than %(n)s bytes."), n=self._bytes_max))
        return bytes(body)

    def _connect(self, addresses: Sequence[IPAddress]) -> socket.socket:
        for address in addresses[:OUTBOUND_ADDRESSES_TRIED_MAX]:
            remaining_s = self._deadline_s - time.monotonic()
            if remaining_s <= 0 or self._is_abandoned:
                break
            plain = socket.socket(socket.AF_INET if address.version == IPV4 else socket.AF_INET6, socket.SOCK_STREAM)
            self._set_socket(plain)
            try:
                plain.settimeout(remaining_s)
                plain.connect((str(address), self._target.port))
            except OSError:
                plain.close()
                continue
            return plain
        raise OutboundFailed(Message(gettext_noop("There was no answer.")))

    def _set_socket(self, current: socket.socket) -> None:
        self._socket = current
        if self._is_abandoned:
            self.abandon()


def _addresses(target: OutboundTarget) -> list[IPAddress]:
    """Returns the allowed addresses of the host."""
    try:
        infos = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise OutboundFailed(_NO_ADDRESS) from None
    addresses = (_literal(str(info[4][0])) for info in infos)
    allowed = [address for address in addresses if address is not None and is_target_allowed(address)]
    if not allowed:
        raise OutboundFailed(_NO_ADDRESS)
    return list(dict.fromkeys(allowed))


def _literal(host: str) -> IPAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _context() -> ssl.SSLContext:
    return _create_context(settings.OUTBOUND_CA_FILE)


@cache
def _create_context(ca_file: str) -> ssl.SSLContext:
    """Creates a TLS context; `ca_file` has CAs in addition to the system's."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file:
        context.load_verify_locations(ca_file)
    return context
