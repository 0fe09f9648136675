"""A tenant's connection during authentication and re-authentication (WIRE-18, WIRE-19, KIP-368).

Legal requests and their responses are those of Apache Kafka's SaslServerAuthenticator; users are proven in
`mechanisms`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from brokers.contract.audit import NOBODY
from brokers.contract.connections import FIRST_REQUEST_MS_MAX
from brokers.contract.users import UserDocument
from brokers.engine.access.authorizer import Address, peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.access.sasl import SaslFailed
from brokers.engine.access.tokens import VerifiedToken
from brokers.engine.handlers.audit_trail import Source
from brokers.engine.handlers.auth.internal_sessions import (
    FAILED_AUTHENTICATION_DELAY_MS,
    RAW_TOKENS_VERSION,
    SIZE,
    AuthenticatedChannel,
    UnauthenticatedSession,
    response_frame,
)
from brokers.engine.handlers.auth.mechanisms import Mechanism, Outcome, Proof, RefusalConfirmed, SlowProof, offered
from brokers.engine.handlers.authentication import AttemptRefused
from brokers.engine.handlers.cluster import api_versions
from brokers.engine.handlers.logins import Login
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import (
    DispatchTable,
    FastCodec,
    RawRequest,
    Session,
    decode_api_versions,
    software_of,
)
from brokers.engine.protocol.apis import ADVERTISED_SASL, APIS, ApiKey, is_served
from brokers.engine.protocol.codec import decode_request
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest
from brokers.engine.protocol.headers import decode_request_header
from brokers.engine.protocol.messages.sasl import ApiVersion, SaslAuthenticateResponse, SaslHandshakeResponse
from brokers.engine.scheduling.fair_queue import QueueFull

# Kafka's message of a response without an error.
NO_MESSAGE: Final = ""
# Maximum time in ms from the creation of the session to the proof.
AUTHENTICATION_MS_MAX: Final = FIRST_REQUEST_MS_MAX
_OF_HANDSHAKE: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)


class ReportFailure(Protocol):
    """Logs a failed authentication, at a limited rate."""

    def __call__(self, instance_id: str, peer: str, mechanism: str, reason: str) -> object: ...


class SignedInSession(Protocol):
    """Session of an authenticated client; `handlers.session.Session` implements it."""

    channel: Any
    principal: Principal
    frame_bytes_max: int
    login: Login | None
    last_client_id: str | None
    software: tuple[str, str]

    def frame_bytes_max_of(self, api_key: int) -> int: ...
    def on_frame(self, buffer: memoryview, start: int, end: int) -> None: ...
    def on_more_bytes(self) -> None: ...
    def on_closed(self) -> None: ...


class SaslRoute:
    """State shared by the connections of one listener. `dispatch_table` has the calls of authenticated connections. A
    subclass may serve other calls than a broker does.
    """

    __slots__ = ("dispatch_table", "instance_id", "name", "report_failure", "services")

    def __init__(
        self,
        services: BrokerServices,
        instance_id: str,
        name: str,
        dispatch_table: DispatchTable,
        report_failure: ReportFailure,
    ) -> None:
        self.services = services
        self.instance_id = instance_id
        self.name = name
        self.report_failure = report_failure
        reauthentication = _Reauthentication(self)
        sasl_handlers = {
            int(ApiKey.SASL_HANDSHAKE): FastCodec(reauthentication.handshake, 0, 1),
            int(ApiKey.SASL_AUTHENTICATE): FastCodec(reauthentication.authenticate, 0, 2),
        }
        self.dispatch_table = dispatch_table._replace(fast_codec={**dispatch_table.fast_codec, **sasl_handlers})

    def served(self) -> list[ApiVersion]:
        """Returns the calls and versions that ApiVersions names."""
        return api_versions.SASL

    def session(self, channel: AuthenticatedChannel, principal: Principal) -> SignedInSession:
        """Returns the session of a client that has authenticated."""
        return Session(self.services, channel, principal, ADVERTISED_SASL, self.dispatch_table, route_name=self.name)


class State(enum.Enum):
    """State of an authentication, named by the requests that are legal next."""

    HANDSHAKE_OR_VERSIONS = "handshake or versions"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    # The handshake of a re-authentication named another mechanism (KIP-368): the next request closes the connection.
    OTHER_MECHANISM = "other mechanism"
    ENDING = "ending"


class SaslReply(NamedTuple):
    """Form of the response to a token: a SaslAuthenticate response of `version`, or a bare frame if it is None."""

    version: int | None
    correlation_id: int


class TenantSaslSession(UnauthenticatedSession):
    """Session during an authentication; `previous_session` is that of a connection that re-authenticates."""

    def __init__(
        self, route: SaslRoute, channel: AuthenticatedChannel, previous_session: SignedInSession | None = None
    ) -> None:
        super().__init__(route.services, channel)
        self._route = route
        self._previous_session = previous_session
        self._address: Address = peer_address(channel.peer_host)
        self._state = State.HANDSHAKE_OR_VERSIONS
        self._mechanism: Mechanism | None = None
        self._mechanism_name = ""
        self._software = ("", "")
        self._client_id: str | None = None
        self._raw_tokens = False
        self._deadline = self.services.loop.call_later(AUTHENTICATION_MS_MAX / 1000, self._end_unauthenticated)

    # -- requests -----------------------------------------------------------------------------------------------------

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        if self._state is State.OTHER_MECHANISM:
            self._fail("the mechanism is another one than before", None)
        elif self._state is State.AUTHENTICATE and self._raw_tokens:
            self._process_token(bytes(buffer[start:end]), SaslReply(None, 0))
        else:
            self._on_request(buffer, start, end)

    def _on_request(self, buffer: memoryview, start: int, end: int) -> None:
        api_key, version, correlation_id, self._client_id, body = decode_request_header(buffer, start, end)
        if self._state is State.AUTHENTICATE:
            self._on_authentication_request(api_key, version, correlation_id, buffer, body, end)
        elif api_key not in _OF_HANDSHAKE:
            self._fail(f"api key {api_key} during the handshake", None)
        elif not is_served(ADVERTISED_SASL, api_key, version):
            raise MalformedRequest(f"version {version} of api key {api_key} is not served here")
        elif api_key == ApiKey.API_VERSIONS:
            self._respond_versions(version, correlation_id, buffer, body, end)
        else:
            mechanism = decode_request(api_key, version, buffer, body, end).mechanism
            self.handle_handshake(mechanism, version, correlation_id)

    def _on_authentication_request(
        self, api_key: int, version: int, correlation_id: int, buffer: memoryview, body: int, end: int
    ) -> None:
        if not is_served(ADVERTISED_SASL, api_key, version):
            raise MalformedRequest(f"version {version} of api key {api_key} is not served here")
        if api_key == ApiKey.SASL_AUTHENTICATE:
            token = bytes(decode_request(api_key, version, buffer, body, end).auth_bytes)
            self._process_token(token, SaslReply(version, correlation_id))
            return
        self._fail(f"api key {api_key} during authentication", _illegal_state(api_key, version, correlation_id))

    def _respond_versions(self, version: int, correlation_id: int, buffer: memoryview, body: int, end: int) -> None:
        if self._state is not State.HANDSHAKE_OR_VERSIONS:
            raise MalformedRequest("ApiVersions is asked once before authentication")
        version, request = decode_api_versions(version, buffer, body, end)
        response = api_versions.build_response(version, request, self._route.served())
        if response.error_code == ErrorCode.NONE:
            self._state = State.HANDSHAKE
            self._software = software_of(request)
        self._respond(ApiKey.API_VERSIONS, version, correlation_id, response)

    def handle_handshake(self, mechanism: str, version: int, correlation_id: int) -> None:
        """Processes a handshake that names a mechanism."""
        mechanisms = offered(self.services.access.authentication, self._route.instance_id)
        make = mechanisms.get(mechanism)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if make is None else ErrorCode.NONE
        response = SaslHandshakeResponse(error_code=int(code), mechanisms=list(mechanisms))
        if make is None:
            frame = response_frame(ApiKey.SASL_HANDSHAKE, version, correlation_id, response)
            self._fail(f"mechanism {mechanism[:40]!r}", frame)
            return
        self._mechanism_name = mechanism
        self._mechanism = make(self.services.access.authentication, self._route.instance_id, self._address)
        self._raw_tokens = version == RAW_TOKENS_VERSION
        self._state = State.AUTHENTICATE
        login = None if self._previous_session is None else self._previous_session.login
        if login is not None and login.mechanism != self._mechanism.number:
            self._state = State.OTHER_MECHANISM
        self._respond(ApiKey.SASL_HANDSHAKE, version, correlation_id, response)

    # -- authentication -----------------------------------------------------------------------------------------------

    def _process_token(self, token: bytes, reply: SaslReply) -> None:
        assert self._mechanism is not None, "there was a handshake"
        try:
            outcome = self._mechanism.process_token(token)
        except (SaslFailed, AttemptRefused, QueueFull) as error:
            self._refuse(error, reply)
            return
        if isinstance(outcome, Outcome):
            self._apply(outcome, reply)
        else:
            self._cancel = self.services.spawn(self._await_proof(outcome, reply)).cancel

    async def _await_proof(self, slow_proof: SlowProof, reply: SaslReply) -> None:
        try:
            outcome = await slow_proof()
        except (SaslFailed, AttemptRefused, QueueFull) as error:
            self._in_turn(partial(self._refuse, error, reply))
            return
        except Exception as error:  # one tenant's request must not stop the broker of all tenants
            self._cancel = None
            self.channel.fail(error)
            return
        self._in_turn(partial(self._apply, outcome, reply))

    def _in_turn(self, work: Callable[[], object]) -> None:
        """Runs `work` in the turn of the instance."""

        def run_contained() -> None:
            self._cancel = None
            try:
                work()
            except Exception as error:  # see `_await_proof`
                self.channel.fail(error)

        turn = self.channel.turns.run_or_enqueue(run_contained)
        self._cancel = None if turn.is_over else turn.cancel

    def _apply(self, outcome: Outcome, reply: SaslReply) -> None:
        if outcome.proven is None:
            if outcome.is_refusal:
                # Counted now: a client that guesses tokens need not confirm.
                self._audit_failure(is_refused=False)
                self.services.access.authentication.record_failure(self._route.instance_id)
            self._respond_token(outcome.token, reply, 0)
            return
        proof = outcome.proven
        authentication, instance_id = self.services.access.authentication, self._route.instance_id
        user = authentication.usable_user(instance_id, proof.username)
        assert self._mechanism is not None, "a mechanism has authenticated a user"
        if not self._still_proves(proof, user):
            # The user changed while its password or token was checked.
            self._refuse(SaslFailed(self._mechanism.failure), reply)
            return
        previous_session = self._previous_session
        if previous_session is not None and previous_session.principal.user != proof.username:
            self._refuse(
                SaslFailed(
                    "Cannot change principals during re-authentication from "
                    f"User.{previous_session.principal.user}: User.{proof.username}"
                ),
                reply,
            )
            return
        lifetime_ms = self._become_session(proof, user)
        authentication.record_sign_in(
            instance_id, proof.username, None if isinstance(proof.by, VerifiedToken) else proof.by
        )
        self._respond_token(outcome.token, reply, lifetime_ms)

    def _still_proves(self, proof: Proof, user: UserDocument | None) -> bool:
        if not isinstance(proof.by, VerifiedToken):
            return user is not None and proof.by in user.secrets
        authentication, instance_id = self.services.access.authentication, self._route.instance_id
        is_shut_out = authentication.is_shut_out(instance_id, proof.username)
        return not is_shut_out and authentication.tokens.terms(instance_id) == proof.by.terms

    def _become_session(self, proof: Proof, user: UserDocument | None) -> int:
        """Starts the session. Returns its lifetime in ms, 0 for the lifetime of the connection."""
        self._deadline.cancel()
        route, services, channel = self._route, self.services, self.channel
        assert self._mechanism is not None, "a mechanism has authenticated a user"
        session = self._previous_session
        if session is None:
            principal = Principal(proof.username, route.instance_id)
            session = route.session(channel, principal)
            session.software, session.last_client_id = self._software, self._client_id
        self._previous_session = None
        logins, previous_login = services.access.authentication.logins, session.login
        by = proof.by.terms if isinstance(proof.by, VerifiedToken) else proof.by
        session.login = Login(logins, channel, route.instance_id, proof.username, self._mechanism.number, by)
        if previous_login is not None:
            session.login.reauthenticated_ms = previous_login.reauthenticated_ms
            previous_login.end()
        logins.add(session.login, user)
        lifetime_ms = services.access.authentication.max_reauth_ms
        if isinstance(proof.by, VerifiedToken):
            # A token that is valid only within the clock skew has to be replaced at once.
            remaining_ms = max(1, proof.by.expires_at_ms - services.clock.now_ms())
            lifetime_ms = min(lifetime_ms, remaining_ms) if lifetime_ms else remaining_ms
        if lifetime_ms:
            session.login.expire_after(lifetime_ms, _Expiry(session, channel))
        channel.session = session
        return lifetime_ms

    # -- responses ----------------------------------------------------------------------------------------------------

    def _respond_token(self, token: bytes, reply: SaslReply, lifetime_ms: int) -> None:
        if reply.version is None:
            self.channel.respond(SIZE.pack(len(token)) + token)
            return
        response = SaslAuthenticateResponse(
            error_code=int(ErrorCode.NONE), error_message=NO_MESSAGE, auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        self._respond(ApiKey.SASL_AUTHENTICATE, reply.version, reply.correlation_id, response)

    def _refuse(self, error: Exception, reply: SaslReply) -> None:
        """Ends a failed authentication. The response does not disclose which part was wrong."""
        assert self._mechanism is not None, "a token was taken"
        delay_ms, message = FAILED_AUTHENTICATION_DELAY_MS, str(error)
        reason = error.reason if isinstance(error, SaslFailed) else ""
        authentication, instance_id = self.services.access.authentication, self._route.instance_id
        if not isinstance(error, QueueFull | RefusalConfirmed):
            self._audit_failure(is_refused=isinstance(error, AttemptRefused))
        if isinstance(error, AttemptRefused):
            delay_ms = max(delay_ms, error.delay_ms)
            user = authentication.usable_user(instance_id, self._mechanism.username)
            self.services.accounting.accountings.get_or_create(instance_id).record_refused_attempt(
                "" if user is None else user.name, delay_ms, self.services.clock.now_ms()
            )
        elif isinstance(error, QueueFull):
            message = "too many connections authenticate at once; try again later"
        elif not isinstance(error, RefusalConfirmed):
            authentication.record_failure(instance_id)
        frame = None
        if reply.version is not None:
            response = SaslAuthenticateResponse(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED), error_message=message, auth_bytes=b""
            )
            frame = response_frame(ApiKey.SASL_AUTHENTICATE, reply.version, reply.correlation_id, response)
        self._fail(reason or message, frame, delay_ms)

    def _audit_failure(self, *, is_refused: bool) -> None:
        """Reports the failure to the audit log; unknown user names are left out, since they may be passwords."""
        assert self._mechanism is not None, "a token was taken"
        route, services = self._route, self.services
        is_known = services.access.authentication.has_user(route.instance_id, self._mechanism.username)
        name = self._mechanism.username if is_known else NOBODY
        source = Source(name, str(self._address), route=route.name)
        services.access.audit.report_failed_sign_in(
            route.instance_id, source, self._mechanism_name, is_refused=is_refused
        )

    def _fail(self, reason: str, frame: bytes | None, delay_ms: int = FAILED_AUTHENTICATION_DELAY_MS) -> None:
        """Logs the reason, sends `frame` after a delay, and closes the connection."""
        self._state = State.ENDING
        self._route.report_failure(self._route.instance_id, self.channel.peer_host, self._mechanism_name, reason)
        self._end_later(frame, delay_ms)

    def _end_unauthenticated(self) -> None:
        self.channel.close("not authenticated in time")

    def on_closed(self) -> None:
        self._deadline.cancel()
        super().on_closed()
        previous_session, self._previous_session = self._previous_session, None
        if previous_session is not None:
            previous_session.on_closed()


class _Expiry:
    """Session of a connection that did not re-authenticate in time. Its next request closes it, unless that begins a
    re-authentication (KIP-368).
    """

    __slots__ = ("_channel", "_session", "frame_bytes_max")

    def __init__(self, session: SignedInSession, channel: AuthenticatedChannel) -> None:
        self._session = session
        self._channel = channel
        self.frame_bytes_max = session.frame_bytes_max

    def __call__(self) -> None:
        """Replaces the session when its lifetime is over."""
        if self._channel.session is self._session:
            self._channel.session = self

    def frame_bytes_max_of(self, api_key: int) -> int:
        return self._session.frame_bytes_max_of(api_key)

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        if buffer[start] << 8 | buffer[start + 1] == ApiKey.SASL_HANDSHAKE:
            self._session.on_frame(buffer, start, end)
        else:
            self._channel.close("the session has expired")

    def on_more_bytes(self) -> None:
        self._session.on_more_bytes()

    def on_closed(self) -> None:
        self._session.on_closed()


class _Reauthentication:
    """Answers SaslHandshake and SaslAuthenticate on an authenticated connection."""

    __slots__ = ("_route",)

    def __init__(self, route: SaslRoute) -> None:
        self._route = route

    def handshake(self, session: SignedInSession, raw: RawRequest) -> None:
        request = decode_request(ApiKey.SASL_HANDSHAKE, raw.version, raw.buffer, raw.body, raw.end)
        authentication, login = self._route.services.access.authentication, session.login
        if login is None or not login.lifetime_ms or not login.may_reauthenticate(authentication.clock.monotonic_ms()):
            frame = _illegal_state(ApiKey.SASL_HANDSHAKE, raw.version, raw.correlation_id)
            assert frame is not None, "the handshake has such an answer"
            session.channel.respond(frame)
            return
        reauthentication = TenantSaslSession(self._route, session.channel, session)
        session.channel.session = reauthentication
        reauthentication.handle_handshake(request.mechanism, raw.version, raw.correlation_id)

    def authenticate(self, session: SignedInSession, raw: RawRequest) -> None:
        response = SaslAuthenticateResponse(
            error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
            error_message="SaslAuthenticate request received after successful authentication",
        )
        session.channel.respond(response_frame(ApiKey.SASL_AUTHENTICATE, raw.version, raw.correlation_id, response))


def _illegal_state(api_key: int, version: int, correlation_id: int) -> bytes | None:
    """Returns the response of a call that is illegal in this state; None for calls that have no such response."""
    code = int(ErrorCode.ILLEGAL_SASL_STATE)
    if api_key == ApiKey.SASL_HANDSHAKE:
        return response_frame(api_key, version, correlation_id, SaslHandshakeResponse(error_code=code, mechanisms=[]))
    if api_key == ApiKey.API_VERSIONS:
        known = version if version <= APIS[ApiKey.API_VERSIONS].version_max else 0
        return response_frame(api_key, known, correlation_id, api_versions.illegal_state())
    return None
