"""Sessions of the internal listener before the peer has authenticated by a secret or a client certificate (WIRE-18,
WIRE-19). A peer with a certificate may name the instance that it acts for (SASL EXTERNAL).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Any, Final, Protocol

from brokers.contract.process_identity import ProcessIdentity
from brokers.engine.access import external, sasl
from brokers.engine.access.external import InternalIdentity
from brokers.engine.access.principals import internal_login_principal
from brokers.engine.handlers.cluster import api_versions
from brokers.engine.handlers.context import Channel
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import decode_api_versions
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ApiKey, is_served
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest, UnsupportedApi
from brokers.engine.protocol.framing import UNAUTHENTICATED_FRAME_BYTES_MAX
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

# Logs the peer and the reason of a failed authentication, at a limited rate.
ReportPeerFailure = Callable[[str, str], object]

# Makes the session of a peer that has authenticated.
StartSession = Callable[["AuthenticatedChannel", InternalIdentity], Any]

# Kafka's setting `connection.failed.authentication.delay.ms`.
FAILED_AUTHENTICATION_DELAY_MS: Final = 100
# A SaslHandshake of this version is followed by tokens without a header, each with only its size in front.
RAW_TOKENS_VERSION: Final = 0
SIZE: Final = Struct(">i")


class AuthenticatedChannel(Channel, Protocol):
    """A connection whose session is replaced when the peer has authenticated."""

    session: Any


class UnauthenticatedSession:
    """Session of a peer that has not authenticated yet. A rejected token is answered after a delay; then the
    connection is closed.
    """

    frame_bytes_max = UNAUTHENTICATED_FRAME_BYTES_MAX

    def __init__(self, services: BrokerServices, channel: AuthenticatedChannel) -> None:
        self.services = services
        self.channel = channel
        self._cancel: Callable[[], object] | None = None

    def frame_bytes_max_of(self, _api_key: int) -> int:
        return self.frame_bytes_max

    def on_more_bytes(self) -> None:
        """Does nothing: bytes that arrive while a rejection is delayed do not send it earlier."""

    def on_closed(self) -> None:
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()

    def _respond(self, api_key: int, version: int, correlation_id: int, response: Any) -> None:
        self.channel.respond(response_frame(api_key, version, correlation_id, response))

    def _end_later(self, frame: bytes | None, delay_ms: int = FAILED_AUTHENTICATION_DELAY_MS) -> None:
        """Sends `frame` after a delay, and closes the connection."""
        self._cancel = self.services.loop.call_later(delay_ms / 1000, self._end, frame).cancel

    def _end(self, frame: bytes | None) -> None:
        if frame is not None:
            self.channel.respond(frame)
        self.channel.close("authentication failed")


class InternalSession(UnauthenticatedSession, ABC):
    """Session of the internal listener that is replaced by a `Session` when the peer has authenticated. Until then it
    answers ApiVersions, SaslHandshake and SaslAuthenticate only.
    """

    mechanisms: tuple[str, ...] = ()

    def __init__(
        self,
        services: BrokerServices,
        channel: AuthenticatedChannel,
        make_session: StartSession,
        report_failure: ReportPeerFailure,
    ) -> None:
        super().__init__(services, channel)
        self._make_session = make_session
        self._report_failure = report_failure
        self._has_mechanism = False

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        api_key, version, correlation_id, _, body = decode_request_header(buffer, start, end)
        if not is_served(ADVERTISED_INTERNAL, api_key, version):
            raise UnsupportedApi(f"version {version} of api key {api_key} is not served here")
        if api_key == ApiKey.API_VERSIONS:
            version, request = decode_api_versions(version, buffer, body, end)
            self._respond(
                api_key, version, correlation_id, api_versions.build_response(version, request, api_versions.INTERNAL)
            )
        elif api_key == ApiKey.SASL_HANDSHAKE:
            is_known = decode_request(api_key, version, buffer, body, end).mechanism in self.mechanisms
            code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._set_mechanism(is_known, version)
            response = SaslHandshakeResponse(error_code=int(code), mechanisms=list(self.mechanisms))
            self._respond(api_key, version, correlation_id, response)
        elif api_key == ApiKey.SASL_AUTHENTICATE and self._has_mechanism:
            token = bytes(decode_request(api_key, version, buffer, body, end).auth_bytes)
            self._authenticate(token, version, correlation_id)
        else:
            self._on_other(api_key, buffer, start, end)

    @abstractmethod
    def _set_mechanism(self, is_known: bool, version: int) -> None:
        """Notes whether a handshake of this version named a known mechanism."""

    def _on_other(self, api_key: int, buffer: memoryview, start: int, end: int) -> None:
        """Processes a request that is not part of a handshake."""
        raise MalformedRequest(f"api key {api_key} before authentication")

    @abstractmethod
    def _authenticate_token(self, token: bytes) -> InternalIdentity:
        """Returns the identity that a token proves. Raises SaslFailed."""

    def _authenticate(self, token: bytes, version: int | None, correlation_id: int) -> None:
        """Answers a token. `version` is that of SaslAuthenticate, None for a token without a header."""
        response = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0)
        key = ApiKey.SASL_AUTHENTICATE
        try:
            asker = self._authenticate_token(token)
        except sasl.SaslFailed as error:
            self._report_failure(self.channel.peer_host, str(error))
            response.error_code, response.error_message = int(ErrorCode.SASL_AUTHENTICATION_FAILED), str(error)
            self._end_later(None if version is None else response_frame(key, version, correlation_id, response))
            return
        self._start_session(asker)
        frame = SIZE.pack(0) if version is None else response_frame(key, version, correlation_id, response)
        self.channel.respond(frame)

    def _start_session(self, asker: InternalIdentity) -> Any:
        self.channel.session = session = self._make_session(self.channel, asker)
        return session


class SaslSession(InternalSession):
    """Session of a peer that authenticates by the secret of the cluster or of an instance."""

    mechanisms = tuple(sasl.MECHANISMS)
    _raw_tokens = False

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        if self._raw_tokens:
            self._authenticate(bytes(buffer[start:end]), None, 0)
        else:
            super().on_frame(buffer, start, end)

    def _set_mechanism(self, is_known: bool, version: int) -> None:
        if is_known:
            self._has_mechanism, self._raw_tokens = True, version == RAW_TOKENS_VERSION

    def _authenticate_token(self, token: bytes) -> InternalIdentity:
        principal = internal_login_principal(sasl.verify_plain(token, self.services.access.control_secret))
        client = sasl.forwarded_client(token)
        if principal is None or (client is not None and principal.instance_id is None):
            raise sasl.SaslFailed("authentication failed")
        return (
            InternalIdentity(principal)
            if client is None
            else InternalIdentity(replace(principal, user=client.user), client.address)
        )


class CertificateSession(InternalSession):
    """Session of a peer whose client certificate proves that it is `process`, which may use the internal listener
    (`external.is_admitted_process`). The peer acts for the cluster if it sends no SASL request.
    """

    mechanisms = (external.MECHANISM,)

    def __init__(
        self,
        services: BrokerServices,
        channel: AuthenticatedChannel,
        make_session: StartSession,
        report_failure: ReportPeerFailure,
        process: ProcessIdentity,
    ) -> None:
        super().__init__(services, channel, make_session, report_failure)
        self.process = process

    def _set_mechanism(self, is_known: bool, version: int) -> None:
        self._has_mechanism = is_known

    def _on_other(self, api_key: int, buffer: memoryview, start: int, end: int) -> None:
        if self._has_mechanism or api_key == ApiKey.SASL_AUTHENTICATE:
            raise MalformedRequest(f"api key {api_key} in the middle of an authentication")
        self._start_session(external.cluster_identity(self.process)).on_frame(buffer, start, end)

    def _authenticate_token(self, token: bytes) -> InternalIdentity:
        return external.identity_of_token(token, self.process)


class RejectedPeerSession(UnauthenticatedSession):
    """Session of a peer whose certificate is not accepted on this listener: its first request closes the connection."""

    def __init__(
        self,
        services: BrokerServices,
        channel: AuthenticatedChannel,
        report_failure: ReportPeerFailure,
        process: ProcessIdentity | None,
        *,
        is_revoked: bool = False,
    ) -> None:
        super().__init__(services, channel)
        self._report_failure = report_failure
        owner = "no process of this installation" if process is None else process.uri
        problem = "is revoked" if is_revoked else "does not open this listener"
        self._reason = f"the certificate of {owner} {problem}"

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        self._report_failure(self.channel.peer_host, self._reason)
        self.channel.close("authentication failed")


def response_frame(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    return encode_response_frame(api_key, version, correlation_id, encode_response(api_key, version, response))
