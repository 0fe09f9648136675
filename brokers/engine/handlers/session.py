"""Session of an identified client on one connection: its view of the cluster, and the request in processing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

from brokers.contract.routes import DEFAULT_ROUTE
from brokers.engine.access.acls import Rights
from brokers.engine.access.authorizer import Address, owner_address, peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.context import Channel, RequestContext, TenantMetadataView
from brokers.engine.handlers.logins import Login
from brokers.engine.handlers.served_api import ServedApi
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.throttle_time import charge_time, throttle_time_ms
from brokers.engine.loop_turns import LONG_TURN_S, timed
from brokers.engine.protocol.apis import APIS, ApiKey, is_served
from brokers.engine.protocol.codec import (
    DECODED_AT_ONCE_ITEMS_MAX,
    REQUEST_ITEMS_MAX,
    decode_request,
    decode_request_in_pieces,
    decoded_at_once_bytes_max,
    encode_response,
)
from brokers.engine.protocol.errors import UnsupportedApi
from brokers.engine.protocol.fast_codec_produce import ITEMS_MAX
from brokers.engine.protocol.framing import FETCH, LISTS, PRODUCE, check_frame_size
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest
from brokers.engine.scheduling.inline_wakeup import InlineWakeup
from brokers.engine.scheduling.permits import Permit
from brokers.engine.scheduling.time_slice import yield_to_others
from brokers.engine.throttling import charging
from brokers.engine.throttling.charging import Limiter

# Bytes of a long request that the broker receives and copies in a second, including the kernel's work.
RECEIVED_BYTES_PER_S: Final = 250_000_000
# Time that the network takes for a short request and its response, in addition to handling it: two system calls, a
# timer, a turn of the event loop.
NETWORK_S: Final = 0.00006
# Maximum number of characters kept of the name and the version of a client's software.
SOFTWARE_CHARS_MAX: Final = 64
# Calls that are answered when other group members have made the same call. They release their decode memory before this
# wait, so that those members' requests can be decoded.
WAIT_FOR_OTHERS: Final = frozenset({int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP)})


class RawRequest:
    """A request frame, `buffer[start:end]`, whose body begins at `body`. The buffer is reused after the request."""

    __slots__ = ("body", "buffer", "client_id", "correlation_id", "end", "start", "version")

    def __init__(
        self,
        version: int,
        correlation_id: int,
        client_id: str | None,
        buffer: memoryview,
        body: int,
        start: int,
        end: int,
    ) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.buffer = buffer
        self.body = body
        self.start = start
        self.end = end

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def copy(self) -> RawRequest:
        """Returns a copy with its own buffer, to be processed later."""
        start = self.start
        frame = memoryview(bytearray(self.buffer[start : self.end]))
        return RawRequest(
            self.version, self.correlation_id, self.client_id, frame, self.body - start, 0, self.end - start
        )


class FastCodec(NamedTuple):
    """Handler of a call that uses the fast codec, and the versions that it handles, which every listener supports."""

    handle: Callable[..., None]
    version_min: int
    version_max: int


class DispatchTable(NamedTuple):
    """Handlers of the calls by api key; a parameter of a session, because their modules import this one."""

    fast_codec: Mapping[int, FastCodec]
    # The calls of `fast_codec` in older versions, whose record sets are converted.
    legacy: Mapping[int, Callable[..., None]]
    apis: Mapping[int, ServedApi]
    # Handles a call of `apis`. Returns the response, or an awaitable of it.
    dispatch: Callable[[RequestContext, Any], Any]


class Session:
    """The `network.interfaces.Session` of an identified client. `cancel` ends a wait when the connection closes;
    `on_next_request` ends it with a response when the client sends another request.
    """

    __slots__ = (
        "_address", "_advertised", "_apis", "_client", "_dispatch", "_fast_codec_handlers", "_legacy_handlers",
        "_uncharged_since_s", "_view", "accounting", "cancel", "channel", "fetch_items_max", "frame_bytes_max",
        "last_client_id", "login", "metadata", "on_next_request", "principal", "produce_items_max", "route_name",
        "services", "software", "storage",
    )  # fmt: skip

    def __init__(
        self,
        services: BrokerServices,
        channel: Channel,
        principal: Principal,
        advertised: Mapping[ApiKey, tuple[int, int]],
        dispatch_table: DispatchTable,
        address: str | None = None,
        route_name: str = DEFAULT_ROUTE,
    ) -> None:
        """Creates the session. `address` is the client's if the peer forwards its calls. `route_name` is the route of
        its instance that the client uses.
        """
        self.services = services
        # Bound once, since each request uses them.
        self.accounting = services.accounting
        self.metadata = services.metadata
        self.storage = services.storage
        self.channel = channel
        self.principal = principal
        self.frame_bytes_max = services.frame_bytes_max
        # Maximum number of topics and partitions of one request, for the fast codec.
        self.produce_items_max = ITEMS_MAX if principal.internal else PRODUCE.items_max
        self.fetch_items_max = ITEMS_MAX if principal.internal else FETCH.items_max
        self.cancel: Callable[[], object] | None = None
        self.on_next_request: Callable[[], object] | None = None
        # The login of the client, on a listener with authentication.
        self.login: Login | None = None
        self._advertised = dict(advertised)
        self._fast_codec_handlers, self._legacy_handlers, self._apis, self._dispatch = dispatch_table
        self._address: Address
        if principal.internal and address is None:
            self._address = owner_address(channel.peer_host)
        else:
            self._address = peer_address(address or channel.peer_host)
        self.route_name = route_name
        self._view: TenantMetadataView | None = None
        self._client: ClientContext | None = None
        # Client id of the last request other than Produce and Fetch; `_client` has theirs.
        self.last_client_id: str | None = None
        # Name and version of the client's software, from ApiVersions.
        self.software: tuple[str, str] = ("", "")
        # Start of the part of this turn that is not yet charged to the client's request quota; 0.0 if it is charged
        # elsewhere.
        self._uncharged_since_s = 0.0

    def view(self) -> TenantMetadataView:
        """Returns the view of the current metadata, cached until the metadata changes."""
        metadata = self.metadata
        view = self._view
        if view is None or view.metadata_version is not metadata.version:
            view = self._view = TenantMetadataView(
                metadata.version, metadata.current.image, self.principal, self.route_name
            )
        return view

    def rights(self) -> Rights:
        """Returns the current rights of the principal."""
        return self.view().rights(self.services.access.acl_indexes, self._address)

    def client(self, client_id: str | None) -> ClientContext:
        """Returns the state of a client id; that of the last one is cached until the metadata changes."""
        client = self._client
        if (
            client is None
            or client.metadata_version is not self.metadata.version
            or client.client_id != (client_id or "")
        ):
            client = self._client = ClientContext(self.services, self.view(), self._address, client_id)
        return client

    @property
    def client_id(self) -> str:
        """Returns the client id of the requests; empty before the first one that has it."""
        return self._client.client_id if self._client is not None else self.last_client_id or ""

    def frame_bytes_max_of(self, api_key: int) -> int:
        """Returns the maximum size of a request of this call, which is checked before the request is received."""
        if self.principal.internal:
            return self.frame_bytes_max
        api = self._apis.get(api_key)
        return min(self.frame_bytes_max, (LISTS if api is None else api.limit).bytes_max)

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        began_s = perf_counter()
        api_key, version, correlation_id, client_id, body = decode_request_header(buffer, start, end)
        fast_codec = self._fast_codec_handlers.get(api_key)
        if fast_codec is not None and fast_codec.version_min <= version <= fast_codec.version_max:
            self.accounting.totals.requests[api_key] += 1
            self._uncharged_since_s = began_s
            fast_codec.handle(self, RawRequest(version, correlation_id, client_id, buffer, body, start, end))
        else:
            self._handle(
                api_key, RawRequest(version, correlation_id, client_id, buffer, body, start, end), fast_codec is None
            )
        ended_s = perf_counter()
        client = self._client
        if client is not None and client.request_limiter is not None:
            self._end_turn(client.request_limiter, ended_s)
        self._uncharged_since_s = 0.0
        spent_s = ended_s - began_s
        if spent_s >= LONG_TURN_S:
            self.accounting.loop_turns.record(api_key, self.principal.instance_id, spent_s)

    def begin_turn(self) -> None:
        """Charges a later part of a Produce or Fetch to the client's request quota, until `end_turn`."""
        if self._client is not None and self._client.request_limiter is not None:
            self._uncharged_since_s = perf_counter()

    def end_turn(self) -> None:
        if self._client is not None and self._client.request_limiter is not None:
            self._end_turn(self._client.request_limiter, perf_counter())
        self._uncharged_since_s = 0.0

    def _end_turn(self, limiter: Limiter, ended_s: float) -> None:
        """Adds the rest of a turn to the time that is charged with the next request."""
        if self._uncharged_since_s:
            limiter.unrecorded_s += ended_s - self._uncharged_since_s

    def leave_turn_uncharged(self) -> None:
        """Does not charge this turn to the client's request quota."""
        self._uncharged_since_s = 0.0

    def time_delay_ms(self, limiter: Limiter) -> int:
        """Returns the delay of the client for the time of its requests, including this turn so far (QUO-21)."""
        now_ms, spent_s = self.services.clock.monotonic_ms(), 0.0
        if self._uncharged_since_s:
            now_s = perf_counter()
            spent_s = now_s - self._uncharged_since_s
            self._uncharged_since_s = now_s
        charging.record_time(limiter, spent_s, now_ms)
        return charging.time_delay_ms(limiter, now_ms)

    def record_time(self, spent_s: float) -> None:
        """Adds time that a turn or a thread spent on a Produce or Fetch of this client."""
        client = self._client
        if client is not None and client.request_limiter is not None:
            client.request_limiter.unrecorded_s += spent_s

    def _respond_later(self, context: RequestContext, correlation_id: int, response: Any) -> None:
        """Sends a response like `_respond`, in a turn of its own."""
        began_s = perf_counter()
        try:
            self._respond(context, correlation_id, response, 0.0)
        except Exception as error:  # a response that cannot be encoded: without this the client would wait for it
            self.channel.fail(error)
        ended_s = perf_counter()
        self.channel.turns.charge(began_s, ended_s)
        self.accounting.loop_turns.record(context.api_key, self.principal.instance_id, ended_s - began_s)

    def _handle(self, api_key: int, raw: RawRequest, has_codec: bool) -> None:
        """Handles a request without the fast codec. `has_codec` is False for an old version of Produce or Fetch."""
        if not is_served(self._advertised, api_key, raw.version):
            raise UnsupportedApi(f"version {raw.version} of api key {api_key} is not served here")
        self.accounting.totals.requests[api_key] += 1
        self.last_client_id = raw.client_id
        if not has_codec:
            self._uncharged_since_s = perf_counter()
            self._legacy_handlers[api_key](self, raw)
            return
        check_frame_size(raw.size_bytes, self.frame_bytes_max_of(api_key))
        api = self._apis[api_key]
        items_max = REQUEST_ITEMS_MAX if self.principal.internal else api.limit.items_max
        if _is_decoded_in_pieces(api_key, raw):
            self.channel.charge_request_copy(raw.size_bytes)
            self.cancel = self.services.spawn(self._decode_and_dispatch(api, raw.copy(), items_max)).cancel
            return
        began_s = perf_counter()
        version, request = raw.version, None
        if api_key != ApiKey.API_VERSIONS:
            request = decode_request(api_key, version, raw.buffer, raw.body, raw.end, items_max)
        else:
            version, request = decode_api_versions(version, raw.buffer, raw.body, raw.end)
            self.software = software_of(request)
        context = RequestContext(self.services, self.view(), api, version, raw.client_id or "", self._address)
        response = self._dispatch(context, request)
        spent_s = perf_counter() - began_s + NETWORK_S
        if hasattr(response, "__await__"):
            charge_time(self, context, spent_s)
            task = self.services.spawn(self._finish(context, raw.correlation_id, response))
            task.add_done_callback(lambda _: close_unstarted(response))  # if it is cancelled before its first step
            self.cancel = task.cancel
        else:
            self._respond(context, raw.correlation_id, response, spent_s)

    async def _decode_and_dispatch(self, api: ServedApi, raw: RawRequest, items_max: int) -> None:
        permit = None
        instance_id = self.principal.instance_id
        try:
            if instance_id is not None and not self.principal.internal:
                permit = await self.accounting.decode_memory.acquire(instance_id, raw.size_bytes)
            await self._dispatch_decoded(api, raw, items_max, permit)
        finally:
            if permit is not None:
                permit.release()

    async def _dispatch_decoded(self, api: ServedApi, raw: RawRequest, items_max: int, permit: Permit | None) -> None:
        try:
            context = RequestContext(self.services, self.view(), api, raw.version, raw.client_id or "", self._address)
            charge_time(self, context, raw.size_bytes / RECEIVED_BYTES_PER_S)
            decoding = decode_in_pieces(api.key, raw, items_max)
            request = await timed(
                decoding, partial(self._on_turn, context), self._take_turn(context), self.turn_to_resume
            )
            raw.buffer.release()  # frees the copy of the frame
            self.channel.release_request_copy()
            if permit is not None and api.key in WAIT_FOR_OTHERS:
                permit.release()
            paused_ms = context.paused_ms
            context = RequestContext(self.services, self.view(), api, raw.version, raw.client_id or "", self._address)
            context.paused_ms, context.request_bytes = paused_ms, raw.size_bytes
            began_s = perf_counter()
            response = self._dispatch(context, request)
            self._on_turn(context, perf_counter() - began_s)
        except Exception as error:  # see `_finish`; also malformed requests
            self.cancel = None
            self.channel.fail(error)
            return
        if hasattr(response, "__await__"):
            await self._finish(context, raw.correlation_id, response)
        else:
            self.cancel = None
            self._respond_later(context, raw.correlation_id, response)

    async def _finish(self, context: RequestContext, correlation_id: int, awaitable: Any) -> None:
        try:
            response = await timed(
                awaitable, partial(self._on_turn, context), self._take_turn(context), self.turn_to_resume
            )
        except Exception as error:  # one tenant's request must not stop the broker of all tenants
            self.cancel = None
            self.channel.fail(error)
            return
        finally:
            close_unstarted(awaitable)  # if the task was cancelled while it waited for its turn
        self.cancel = None
        self._respond_later(context, correlation_id, response)

    def _on_turn(self, context: RequestContext, spent_s: float) -> None:
        """Accounts for a turn of the event loop that was spent on this call."""
        now_s = perf_counter()
        self.channel.turns.charge(now_s - spent_s, now_s)
        charge_time(self, context, spent_s)
        if spent_s >= LONG_TURN_S:
            self.accounting.loop_turns.record(context.api_key, self.principal.instance_id, spent_s)

    def turn_to_resume(self) -> InlineWakeup | None:
        """Returns the awaitable for a task to await before its next step; None if it need not wait. A single event may
        wake many tasks, for example those of all members of a group.
        """
        return self.channel.turns.turn_to_resume(self.services.loop)

    def _take_turn(self, context: RequestContext) -> Callable[[], Awaitable[None]] | None:
        """Returns what a long request awaits before its next part; None for the cluster itself, which need not wait."""
        instance_id = self.principal.instance_id
        if instance_id is None or self.principal.internal:
            return None
        return partial(self._wait_for_turn, context, instance_id)

    async def _wait_for_turn(self, context: RequestContext, instance_id: str) -> None:
        services = self.services
        context.paused_ms += services.accounting.accountings.get_or_create(instance_id).request_time.debt_ms(
            services.clock.monotonic_ms()
        )
        await services.accounting.request_turns.enqueue(instance_id)

    def _respond(self, context: RequestContext, correlation_id: int, response: Any, spent_s: float) -> None:
        delay_ms = throttle_time_ms(self, context, response, spent_s)
        if delay_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
        began_s = perf_counter()
        body = encode_response(context.api_key, context.version, response)
        charge_time(self, context, perf_counter() - began_s)  # part of the responding turn; delays the next response
        frame = encode_response_frame(context.api_key, context.version, correlation_id, body)
        # A broker that forwards a client's request is not muted: it mutes the connection of the client.
        self.channel.respond(frame, 0 if self.principal.internal else delay_ms)

    def on_more_bytes(self) -> None:
        on_next_request, self.on_next_request = self.on_next_request, None
        if on_next_request is not None:
            on_next_request()

    def on_closed(self) -> None:
        cancel, self.cancel = self.cancel, None
        if cancel is not None:
            cancel()
        login, self.login = self.login, None
        if login is not None:
            login.end()


def close_unstarted(awaitable: Any) -> None:
    """Closes the coroutine of a response that will not be awaited, unless it has finished. A future is not affected."""
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()


def software_of(request: ApiVersionsRequest | None) -> tuple[str, str]:
    """Returns the truncated name and version of a client's software; empty before version 3."""
    if request is None:
        return "", ""
    name, version = request.client_software_name, request.client_software_version
    return name[:SOFTWARE_CHARS_MAX], version[:SOFTWARE_CHARS_MAX]


def _is_decoded_in_pieces(api_key: int, raw: RawRequest) -> bool:
    if raw.size_bytes <= DECODED_AT_ONCE_ITEMS_MAX or api_key == ApiKey.API_VERSIONS:
        return False
    return raw.size_bytes > decoded_at_once_bytes_max(api_key, raw.version)


def decode_api_versions(version: int, buffer: memoryview, body: int, end: int) -> tuple[int, Any]:
    """Decodes a request of ApiVersions. An unknown version is not parsed, but becomes None in version 0 (WIRE-15)."""
    if not 0 <= version <= APIS[ApiKey.API_VERSIONS].version_max:
        return 0, None
    return version, decode_request(ApiKey.API_VERSIONS, version, buffer, body, end)


async def decode_in_pieces(api_key: int, raw: RawRequest, items_max: int) -> Any:
    """Decodes a request, one part in each turn of the event loop."""
    decoding = decode_request_in_pieces(api_key, raw.version, raw.buffer, raw.body, raw.end, items_max)
    while True:
        await yield_to_others()
        try:
            next(decoding)
        except StopIteration as end:
            return end.value
