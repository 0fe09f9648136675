"""The internal listener before a peer has authenticated: ApiVersions, SaslHandshake and SaslAuthenticate only (WIRE-18,
WIRE-19).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Any, Final, Protocol

from brokers.engine.access import sasl
from brokers.engine.access.principals import of_internal_login
from brokers.engine.handlers.cluster import api_versions
from brokers.engine.handlers.context import Channel
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import DispatchTable, Session, decode_api_versions
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ApiKey, is_served
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest, UnsupportedApi
from brokers.engine.protocol.framing import UNAUTHENTICATED_FRAME_BYTES_MAX
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

# Logs the peer and the reason of a failed authentication, at a limited rate.
TellFailed = Callable[[str, str], object]

FAILED_AUTHENTICATION_DELAY_MS: Final = 100
_SIZE: Final = Struct(">i")
_RAW_TOKENS_VERSION: Final = 0


class AuthenticatedChannel(Channel, Protocol):
    """A connection whose session is replaced when the peer has authenticated."""

    session: Any


class SaslSession:
    """Becomes a `Session` on success; on failure responds after a delay and closes."""

    def __init__(
        self,
        services: BrokerServices,
        channel: AuthenticatedChannel,
        dispatch_table: DispatchTable,
        tell_failed: TellFailed,
    ) -> None:
        self.services = services
        self._dispatch_table = dispatch_table
        self.channel = channel
        self._report_failure = tell_failed
        self.frame_bytes_max = UNAUTHENTICATED_FRAME_BYTES_MAX
        self._mechanism: str | None = None
        self._raw_tokens = False
        self._cancel: Callable[[], object] | None = None

    def frame_bytes_max_of(self, _api_key: int) -> int:
        return self.frame_bytes_max

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        if self._raw_tokens:
            self._prove(bytes(buffer[start:end]), lambda error: _SIZE.pack(0), None)
            return
        api_key, version, correlation_id, _, body = decode_request_header(buffer, start, end)
        if not is_served(ADVERTISED_INTERNAL, api_key, version):
            raise UnsupportedApi(f"version {version} of api key {api_key} is not served here")
        if api_key == ApiKey.API_VERSIONS:
            version, request = decode_api_versions(version, buffer, body, end)
            self._respond(api_key, version, correlation_id, api_versions.answer(version, request, internal=True))
        elif api_key == ApiKey.SASL_HANDSHAKE:
            self._handshake(decode_request(api_key, version, buffer, body, end).mechanism, version, correlation_id)
        elif api_key == ApiKey.SASL_AUTHENTICATE and self._mechanism is not None:
            token = bytes(decode_request(api_key, version, buffer, body, end).auth_bytes)
            self._authenticate(token, version, correlation_id)
        else:
            raise MalformedRequest(f"api key {api_key} before authentication")

    def _handshake(self, mechanism: str, version: int, correlation_id: int) -> None:
        known = mechanism in sasl.MECHANISMS
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=int(code), mechanisms=list(sasl.MECHANISMS))
        if known:
            self._mechanism = mechanism
            self._raw_tokens = version == _RAW_TOKENS_VERSION
        self._respond(ApiKey.SASL_HANDSHAKE, version, correlation_id, response)

    def _authenticate(self, token: bytes, version: int, correlation_id: int) -> None:
        def frame(error: str | None) -> bytes:
            code = ErrorCode.NONE if error is None else ErrorCode.SASL_AUTHENTICATION_FAILED
            response = SaslAuthenticateResponse(
                error_code=int(code), error_message=error, auth_bytes=b"", session_lifetime_ms=0
            )
            body = encode_response(ApiKey.SASL_AUTHENTICATE, version, response)
            return encode_response_frame(ApiKey.SASL_AUTHENTICATE, version, correlation_id, body)

        self._prove(token, frame, frame)

    def _prove(
        self, token: bytes, succeeded: Callable[[str | None], bytes], failed: Callable[[str | None], bytes] | None
    ) -> None:
        try:
            username = sasl.prove_plain(token, self.services.access.control_secret)
            principal = of_internal_login(username)
            client = sasl.passed_on_for(token)
            if principal is None or (client is not None and principal.instance_id is None):
                raise sasl.SaslFailed("authentication failed")
        except sasl.SaslFailed as error:
            self._report_failure(self.channel.peer_host, str(error))
            answer = failed(str(error)) if failed is not None else None
            self._cancel = self.services.loop.call_later(
                FAILED_AUTHENTICATION_DELAY_MS / 1000, self._refuse, answer
            ).cancel
            return
        address = None
        if client is not None:
            address, principal = client.address, replace(principal, user=client.user)
        self.channel.session = Session(
            self.services, self.channel, principal, ADVERTISED_INTERNAL, self._dispatch_table, address
        )
        self.channel.respond(succeeded(None))

    def _refuse(self, answer: bytes | None) -> None:
        if answer is not None:
            self.channel.respond(answer)
        self.channel.close("authentication failed")

    def _respond(self, api_key: int, version: int, correlation_id: int, response: Any) -> None:
        body = encode_response(api_key, version, response)
        self.channel.respond(encode_response_frame(api_key, version, correlation_id, body))

    def on_more(self) -> None:
        """Does nothing: a rejection keeps its delay."""

    def on_closed(self) -> None:
        if self._cancel is not None:
            self._cancel()
