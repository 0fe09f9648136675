"""Probe of an upstream Kafka cluster: checks that it is reachable, accepts the login, and is new enough."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext_noop
from kafka.protocol.admin.cluster import DescribeLogDirsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from brokers.contract import gateway_calls
from brokers.contract.scram_client import SCRAM_MECHANISMS, ScramClient, ScramRefused
from brokers.contract.upstream import Address, UpstreamSettings, parse_servers, tls_context
from brokers.dataplane.link import CLIENT_ID, Link, LinkDown
from tenants.errors import Invalid, Message

# Maximum seconds of a probe, and of its attempt with one server.
UPSTREAM_PROBE_S: Final = 6.0
UPSTREAM_PROBE_SERVER_S: Final = 3.0
# Number of probes at a time. A probe that waits for a name server occupies its thread beyond its deadline.
UPSTREAM_PROBE_THREADS: Final = 4
METADATA_VERSION: Final = 4
DESCRIBE_LOG_DIRS: Final = 35
DESCRIBE_LOG_DIRS_VERSION_MAX: Final = 4
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 0
UNSUPPORTED_MECHANISM: Final = 33
SERVERS_FIELD: Final = "/backend/bootstrap_servers"
PROTOCOL_FIELD: Final = "/backend/security_protocol"
MECHANISM_FIELD: Final = "/backend/sasl_mechanism"
LOGIN_FIELD: Final = "/backend/password"
CA_FIELD: Final = "/backend/ca_pem"
CERTIFICATE_FIELD: Final = "/backend/client_certificate"

_threads = ThreadPoolExecutor(UPSTREAM_PROBE_THREADS, thread_name_prefix="upstream-probe")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamBroker:
    """A broker of the upstream cluster, as the upstream describes it."""

    id: int
    host: str
    port: int
    rack: str

    def to_body(self) -> dict[str, Any]:
        return {"id": self.id, "host": self.host, "port": self.port, "rack": self.rack}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedUpstream:
    """Usable upstream: its settings, its own cluster id, and its brokers by id."""

    settings: UpstreamSettings
    cluster_id: str
    brokers: tuple[UpstreamBroker, ...]


class UpstreamLink(Link):
    """Connection to an upstream broker, which may use TLS; not authenticated yet.

    Reads fail after `deadline_s` (`time.monotonic`), even if the server still sends single bytes.
    """

    def __init__(self, address: Address, context: ssl.SSLContext | None, deadline_s: float) -> None:
        """Raises OSError."""
        self.address = address
        self._client_id = CLIENT_ID
        self._correlation_id = 0
        self._deadline_s = deadline_s
        plain = socket.create_connection(address, self.remaining_s())
        try:
            self._socket = plain if context is None else context.wrap_socket(plain, server_hostname=address[0])
        except BaseException:
            plain.close()
            raise

    def remaining_s(self) -> float:
        """Returns the seconds until the deadline. Raises TimeoutError after it."""
        remaining_s = self._deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        return remaining_s

    def _receive(self, bytes_max: int) -> bytes:
        self._socket.settimeout(self.remaining_s())
        return super()._receive(bytes_max)


def probe(upstream: UpstreamSettings) -> ProbedUpstream:
    """Returns the upstream with its brokers. Raises `Invalid` with the reason if it cannot be used.

    It takes `UPSTREAM_PROBE_S` at most, also if a name server does not answer.
    """
    try:
        context = tls_context(upstream)
    except (OSError, ValueError):
        field = CERTIFICATE_FIELD if upstream.client_certificate else CA_FIELD
        raise Invalid.at(field, gettext_noop("This is no PEM that can be used."), code="invalid_pem") from None
    servers = parse_servers(upstream.bootstrap_servers)
    future = _threads.submit(_probe_first_reachable, servers, upstream, context, time.monotonic() + UPSTREAM_PROBE_S)
    try:
        return future.result(UPSTREAM_PROBE_S)
    except FutureTimeout:
        future.cancel()
        raise _unreachable(servers[0], "no answer in time") from None


def _probe_first_reachable(
    servers: Sequence[Address], upstream: UpstreamSettings, context: ssl.SSLContext | None, deadline_s: float
) -> ProbedUpstream:
    """Probes servers in order until one can be reached. Raises `Invalid`."""
    failure: Invalid | None = None
    for address in servers:
        now_s = time.monotonic()
        if now_s >= deadline_s:
            break
        try:
            return _probe_server(address, upstream, context, min(deadline_s, now_s + UPSTREAM_PROBE_SERVER_S))
        except ssl.SSLCertVerificationError as error:
            raise Invalid.at(
                CA_FIELD,
                Message(
                    gettext_noop("The certificate of %(server)s is not accepted: %(reason)s."),
                    server=_address_text(address),
                    reason=error.verify_message,
                ),
                code="tls_authority",
            ) from None
        except ssl.SSLError as error:
            raise Invalid.at(
                PROTOCOL_FIELD,
                Message(
                    gettext_noop("%(server)s answers no TLS handshake: %(reason)s."),
                    server=_address_text(address),
                    reason=error.reason or "closed",
                ),
                code="tls_failed",
            ) from None
        except OSError as error:
            failure = failure or _unreachable(address, error.strerror or "no answer in time")
    raise failure or _unreachable(servers[0], "no answer in time")


def _probe_server(
    address: Address, upstream: UpstreamSettings, context: ssl.SSLContext | None, deadline_s: float
) -> ProbedUpstream:
    link = UpstreamLink(address, context, deadline_s)
    try:
        versions = link.call(ApiVersionsRequest(version=0), timeout_s=link.remaining_s())
        served = {api.api_key: api.max_version for api in versions.api_keys}
        _require_new_enough(address, served)
        if upstream.has_sasl:
            _authenticate(link, upstream)
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False, version=METADATA_VERSION)
        response = link.call(request, timeout_s=link.remaining_s())
        _require_sizes(link, min(served.get(DESCRIBE_LOG_DIRS, 0), DESCRIBE_LOG_DIRS_VERSION_MAX))
    except LinkDown:
        raise Invalid.at(
            PROTOCOL_FIELD,
            Message(
                gettext_noop("%(server)s accepts connections, but does not speak Kafka with this security."),
                server=_address_text(address),
            ),
            code="not_kafka",
        ) from None
    finally:
        link.close()
    brokers = (
        UpstreamBroker(id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack or "")
        for broker in response.brokers
    )
    return ProbedUpstream(
        settings=upstream,
        cluster_id=response.cluster_id or "",
        brokers=tuple(sorted(brokers, key=lambda broker: broker.id)),
    )


def _require_new_enough(address: Address, max_version_by_api: dict[int, int]) -> None:
    unsupported = [key for key, version in gateway_calls.FORWARDED.items() if max_version_by_api.get(key, -1) < version]
    if unsupported:
        raise Invalid.at(
            SERVERS_FIELD,
            Message(
                gettext_noop("%(server)s is too old: Apache Kafka 3.0 or later is needed."),
                server=_address_text(address),
            ),
            code="too_old",
        )


def _require_sizes(link: UpstreamLink, version: int) -> None:
    """Checks that the upstream tells the sizes of logs, by which gateways limit the storage of instances."""
    response = link.call(DescribeLogDirsRequest(topics=[], version=version), timeout_s=link.remaining_s())
    # Before version 3 a refusal has no error code, but no directory either.
    if not response.results:
        raise Invalid.at(
            LOGIN_FIELD,
            gettext_noop("The upstream does not tell the sizes of logs: this user needs DESCRIBE on the cluster."),
            code="not_authorized",
        )


def _authenticate(link: UpstreamLink, upstream: UpstreamSettings) -> None:
    handshake = link.call(
        SaslHandshakeRequest(mechanism=upstream.sasl_mechanism, version=HANDSHAKE_VERSION),
        timeout_s=link.remaining_s(),
    )
    if handshake.error_code:
        offered = ", ".join(sorted(handshake.mechanisms))[:200]
        raise Invalid.at(
            MECHANISM_FIELD,
            Message(gettext_noop("The upstream offers %(offered)s."), offered=offered or "none"),
            code="unsupported_mechanism",
        )

    def exchange(token: bytes) -> bytes:
        response = link.call(
            SaslAuthenticateRequest(auth_bytes=token, version=AUTHENTICATE_VERSION), timeout_s=link.remaining_s()
        )
        if response.error_code:
            raise ScramRefused
        return bytes(response.auth_bytes)

    try:
        if upstream.sasl_mechanism not in SCRAM_MECHANISMS:
            exchange(f"\0{upstream.username}\0{upstream.password}".encode())
            return
        scram = ScramClient(upstream.sasl_mechanism, upstream.username, upstream.password)
        scram.verify(exchange(scram.final_message(exchange(scram.first_message()))))
    except ScramRefused:
        raise Invalid.at(
            LOGIN_FIELD, gettext_noop("The upstream refuses this user name and password."), code="wrong_credentials"
        ) from None


def _unreachable(address: Address, reason: str) -> Invalid:
    detail = Message(
        gettext_noop("%(server)s cannot be reached: %(reason)s."), server=_address_text(address), reason=reason.lower()
    )
    return Invalid.at(SERVERS_FIELD, detail, code="unreachable")


def _address_text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
