"""The internal listener for a peer with a client certificate. The peer names the instance that it acts for (SASL
EXTERNAL), or acts for the cluster if it sends no SASL request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from brokers.contract.process_identity import ProcessIdentity
from brokers.engine.access import external
from brokers.engine.access.external import Asker
from brokers.engine.access.sasl import SaslFailed
from brokers.engine.handlers.auth.sasl import FAILED_AUTHENTICATION_DELAY_MS, AuthenticatedChannel, TellFailed
from brokers.engine.handlers.cluster import api_versions
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import DispatchTable, Session, decode_api_versions
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ApiKey, is_served
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest, UnsupportedApi
from brokers.engine.protocol.framing import UNAUTHENTICATED_FRAME_BYTES_MAX
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

MECHANISMS: Final = (external.MECHANISM,)


class CertificateSession:
    """Becomes a `Session` with the first request that is not part of a handshake. `process` may connect
    (`external.may_enter`).
    """

    def __init__(
        self,
        services: BrokerServices,
        channel: AuthenticatedChannel,
        dispatch_table: DispatchTable,
        tell_failed: TellFailed,
        process: ProcessIdentity,
    ) -> None:
        self.services = services
        self.channel = channel
        self._dispatch_table = dispatch_table
        self._report_failure = tell_failed
        self._process = process
        self.frame_bytes_max = UNAUTHENTICATED_FRAME_BYTES_MAX
        self._has_mechanism = False
        self._cancel: Callable[[], object] | None = None

    def frame_bytes_max_of(self, _api_key: int) -> int:
        return self.frame_bytes_max

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        api_key, version, correlation_id, _, body = decode_request_header(buffer, start, end)
        if not is_served(ADVERTISED_INTERNAL, api_key, version):
            raise UnsupportedApi(f"version {version} of api key {api_key} is not served here")
        if api_key == ApiKey.API_VERSIONS:
            version, request = decode_api_versions(version, buffer, body, end)
            self._respond(api_key, version, correlation_id, api_versions.answer(version, request, internal=True))
        elif api_key == ApiKey.SASL_HANDSHAKE:
            self._handshake(decode_request(api_key, version, buffer, body, end).mechanism, version, correlation_id)
        elif api_key == ApiKey.SASL_AUTHENTICATE and self._has_mechanism:
            token = bytes(decode_request(api_key, version, buffer, body, end).auth_bytes)
            self._authenticate(token, version, correlation_id)
        elif self._has_mechanism or api_key == ApiKey.SASL_AUTHENTICATE:
            raise MalformedRequest(f"api key {api_key} in the middle of an authentication")
        else:
            self._become(external.asks_for_cluster(self._process)).on_frame(buffer, start, end)

    def _handshake(self, mechanism: str, version: int, correlation_id: int) -> None:
        self._has_mechanism = known = mechanism in MECHANISMS
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=int(code), mechanisms=list(MECHANISMS))
        self._respond(ApiKey.SASL_HANDSHAKE, version, correlation_id, response)

    def _authenticate(self, token: bytes, version: int, correlation_id: int) -> None:
        response = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0)
        try:
            asker = external.asks_as(token, self._process)
        except SaslFailed as error:
            self._report_failure(self.channel.peer_host, str(error))
            response.error_code, response.error_message = int(ErrorCode.SASL_AUTHENTICATION_FAILED), str(error)
            frame = _frame(ApiKey.SASL_AUTHENTICATE, version, correlation_id, response)
            delay_s = FAILED_AUTHENTICATION_DELAY_MS / 1000
            self._cancel = self.services.loop.call_later(delay_s, self._refuse, frame).cancel
            return
        self._become(asker)
        self._respond(ApiKey.SASL_AUTHENTICATE, version, correlation_id, response)

    def _become(self, asker: Asker) -> Session:
        self.channel.session = session = Session(
            self.services, self.channel, asker.principal, ADVERTISED_INTERNAL, self._dispatch_table, asker.address
        )
        return session

    def _refuse(self, answer: bytes) -> None:
        self.channel.respond(answer)
        self.channel.close("authentication failed")

    def _respond(self, api_key: int, version: int, correlation_id: int, response: Any) -> None:
        self.channel.respond(_frame(api_key, version, correlation_id, response))

    def on_more(self) -> None:
        """Does nothing: a rejection keeps its delay."""

    def on_closed(self) -> None:
        if self._cancel is not None:
            self._cancel()


class UnwelcomeSession:
    """Session of a peer whose certificate is not accepted on this listener: its first request closes it."""

    frame_bytes_max = UNAUTHENTICATED_FRAME_BYTES_MAX

    def __init__(self, channel: AuthenticatedChannel, tell_failed: TellFailed, process: ProcessIdentity | None) -> None:
        self._channel = channel
        self._report_failure = tell_failed
        self._who = "no process of this installation" if process is None else process.uri

    def frame_bytes_max_of(self, _api_key: int) -> int:
        return self.frame_bytes_max

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        self._report_failure(self._channel.peer_host, f"the certificate of {self._who} does not open this listener")
        self._channel.close("authentication failed")

    def on_more(self) -> None:
        """Does nothing: no request is answered."""

    def on_closed(self) -> None:
        """Does nothing: nothing is waiting."""


def _frame(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    body = encode_response(api_key, version, response)
    return encode_response_frame(api_key, version, correlation_id, body)
