"""Requests of one client: decoded, authorised, forwarded, charged, answered, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import structlog

from brokers.contract.routes import DEFAULT_ROUTE
from brokers.engine.access.authorizer import Address, owner_address, peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.api_table import DISPATCH_TABLE
from brokers.engine.handlers.auditing import changes
from brokers.engine.handlers.auth.internal_sessions import AuthenticatedChannel
from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.cluster import api_versions
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.handlers.logins import Login
from brokers.engine.handlers.produce.async_produce import wait_until_paid
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import (
    WAIT_FOR_OTHERS,
    FastCodec,
    RawRequest,
    Session,
    decode_api_versions,
    decode_in_pieces,
    software_of,
)
from brokers.engine.handlers.throttle_time import Reason, Throttle, apply_longest, charge_time, throttle_time_ms
from brokers.engine.loop_turns import LONG_TURN_S, timed
from brokers.engine.network.buffers import RetainedFrame
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import (
    DECODED_AT_ONCE_ITEMS_MAX,
    decode_request,
    decoded_at_once_bytes_max,
    encode_response,
    encode_response_in_pieces,
)
from brokers.engine.protocol.errors import MalformedRequest, UnsupportedApi
from brokers.engine.protocol.framing import LISTS, check_frame_size
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.mapping import NodeAddress, ToTenant, ToUpstream
from brokers.engine.protocol.messages.produce import ProduceRequest
from brokers.engine.scheduling.inline_wakeup import InlineWakeup
from brokers.engine.scheduling.permits import Permit
from brokers.engine.scheduling.time_slice import yield_to_others
from brokers.engine.throttling.charging import Limiter
from brokers.engine.throttling.waits import Mute
from brokers.engine.upstream import topic_calls
from brokers.engine.upstream.audited import copy_request, is_audited, reorder_like_results
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.calls import API_VERSIONS_ROW, FORWARDED_APIS, HANDLERS, PARTITION_ADDITIONS
from brokers.engine.upstream.connection import Admit, Body, UpstreamConnection, UpstreamLost
from brokers.engine.upstream.response_memory import ResponseMemory
from brokers.engine.upstream.storage import UpstreamStorage
from brokers.engine.upstream.versions import OWN, Versions, api_version_list

log = structlog.get_logger(__name__)


class SessionNode(Protocol):
    """The upstream broker of a session; `node.UpstreamNode` implements it."""

    services: BrokerServices
    responses: ResponseMemory
    storage: UpstreamStorage
    served: Versions
    # Calls that are answered here, from the metadata of this gateway.
    own_versions: Versions

    async def connect(self) -> UpstreamConnection: ...
    def creation_lock(self, instance_id: str) -> asyncio.Lock: ...
    def partitions_max(self, instance_id: str) -> int: ...


class ClientUpstream:
    """The upstream connection of one client, opened for its first request and again if the upstream closed it between
    two requests.
    """

    __slots__ = ("_connection", "_is_closed", "_node", "_sent_without_response")

    def __init__(self, node: SessionNode) -> None:
        self._node = node
        self._connection: UpstreamConnection | None = None
        self._is_closed = False
        # True if the last request has no response: the upstream then reports its failure by closing the connection.
        self._sent_without_response = False

    async def exchange(
        self, api_key: int, version: int, client_id: str | None, body: Body, admit: Admit
    ) -> tuple[bytes, int]:
        """Returns a response as `UpstreamConnection.exchange` does. Raises UpstreamLost."""
        connection = await self._get_connection()
        self._sent_without_response = False
        return await connection.exchange(api_key, version, client_id, body, admit=admit)

    async def send(self, api_key: int, version: int, client_id: str | None, body: Body) -> None:
        connection = await self._get_connection()
        self._sent_without_response = True
        await connection.send(api_key, version, client_id, body)

    async def _get_connection(self) -> UpstreamConnection:
        connection = self._connection
        if connection is not None and not connection.is_closed:
            return connection
        if connection is not None:
            self._connection = None
            connection.close()
            if self._sent_without_response:
                raise UpstreamLost("the upstream closed the connection")
        connection = await self._node.connect()
        if self._is_closed:
            connection.close()
            raise UpstreamLost("the client has gone")
        self._connection = connection
        return connection

    def close(self) -> None:
        self._is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class GatewaySession:
    """The `network.interfaces.Session` of an identified client."""

    __slots__ = (
        "_address", "_client", "_local_session", "_node", "_sasl", "_task", "_upstream", "_view",
        "channel", "frame_bytes_max", "last_client_id", "login", "principal", "route_name", "software",
    )  # fmt: skip

    def __init__(
        self,
        node: SessionNode,
        channel: AuthenticatedChannel,
        principal: Principal,
        sasl: dict[int, FastCodec],
        route_name: str = DEFAULT_ROUTE,
    ) -> None:
        """Creates the session. `sasl` has the handlers of a re-authentication, by api key."""
        self._node = node
        self.channel: Any = channel
        self.principal = principal
        self._sasl = sasl
        self.route_name = route_name
        self._address: Address
        if principal.internal:
            self._address = owner_address(channel.peer_host)
        else:
            self._address = peer_address(channel.peer_host)
        self._upstream = ClientUpstream(node)
        self._task: asyncio.Task[None] | None = None
        self._client: ClientContext | None = None
        self._view: TenantMetadataView | None = None
        # Session for the calls that are answered here, created with the first of them.
        self._local_session: Session | None = None
        self.frame_bytes_max = node.services.frame_bytes_max
        self.login: Login | None = None
        self.last_client_id: str | None = None
        self.software = ("", "")

    @property
    def services(self) -> BrokerServices:
        return self._node.services

    @property
    def client_id(self) -> str:
        """Returns the client id of the last request; empty before the first one that has it."""
        return self.last_client_id or ""

    def view(self) -> TenantMetadataView:
        """Returns the view of the current metadata, cached until the metadata changes."""
        metadata, view = self._node.services.metadata, self._view
        if view is None or view.metadata_version is not metadata.version:
            view = self._view = TenantMetadataView(
                metadata.version, metadata.current.image, self.principal, self.route_name
            )
        return view

    # -- the connection -----------------------------------------------------------------------------------------------

    def frame_bytes_max_of(self, api_key: int) -> int:
        if api_key in self._node.own_versions:
            return self._local().frame_bytes_max_of(api_key)
        row = FORWARDED_APIS.get(api_key)
        return min(self.frame_bytes_max, (LISTS if row is None else row.limit).bytes_max)

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        api_key, version, correlation_id, client_id, body = decode_request_header(buffer, start, end)
        raw = RawRequest(version, correlation_id, client_id, buffer, body, start, end)
        if api_key in self._sasl:
            self._sasl[api_key].handle(self, raw)
            return
        if api_key == ApiKey.API_VERSIONS:
            self._respond_with_versions(raw)
            return
        if api_key in self._node.own_versions:
            self._local().on_frame(buffer, start, end)
            return
        served_versions = self._node.served.get(api_key)  # type: ignore[call-overload]
        if served_versions is None or not served_versions[0] <= version <= served_versions[1]:
            raise UnsupportedApi(f"version {version} of api key {api_key} is not forwarded")
        check_frame_size(raw.size_bytes, self.frame_bytes_max_of(api_key))
        self.last_client_id = client_id
        services = self._node.services
        services.accounting.totals.requests[api_key] += 1
        api = FORWARDED_APIS[api_key]
        context = RequestContext(services, self.view(), api, version, client_id or "", self._address)
        # Copying a long produce would take long, and others are short.
        retained = self.channel.retain_frame() if api_key == ApiKey.PRODUCE else None
        if retained is None:
            self.channel.charge_request_copy(raw.size_bytes)
            raw = raw.copy()
        self._task = services.spawn(self._run(context, raw, retained))

    def _respond_with_versions(self, raw: RawRequest) -> None:
        version, request = decode_api_versions(raw.version, raw.buffer, raw.body, raw.end)
        self.software = software_of(request)
        services = self._node.services
        context = RequestContext(services, self.view(), API_VERSIONS_ROW, version, raw.client_id or "", self._address)
        response = api_versions.build_response(version, request, self.listed_versions())
        response.throttle_time_ms = throttle_time_ms(self, context, response, 0.0)
        body = encode_response(ApiKey.API_VERSIONS, version, response)
        frame = encode_response_frame(ApiKey.API_VERSIONS, version, raw.correlation_id, body)
        self.channel.respond(frame, response.throttle_time_ms)

    def listed_versions(self) -> list[Any]:
        return api_version_list({**self._node.served, **self._node.own_versions, **OWN})

    def _local(self) -> Session:
        session = self._local_session
        if session is None:
            session = self._local_session = Session(
                self._node.services,
                self.channel,
                self.principal,
                dict(self._node.own_versions),
                DISPATCH_TABLE,
                route_name=self.route_name,
            )
        return session

    def on_more_bytes(self) -> None:
        """Does nothing: a fetch that waits at the upstream cannot be ended early."""

    def on_closed(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._upstream.close()
        if self._local_session is not None:
            self._local_session.on_closed()
        login, self.login = self.login, None
        if login is not None:
            login.end()

    # -- one request --------------------------------------------------------------------------------------------------

    async def _run(self, context: RequestContext, raw: RawRequest, retained: RetainedFrame | None) -> None:
        try:
            await timed(
                self._serve(context, raw, retained),
                partial(self._on_turn, context),
                None if self.principal.internal else partial(self._wait_for_turn, context),
                self._turn_to_resume,
            )
        except UpstreamLost as error:
            self._task = None
            log.warning("upstream_lost", instance_id=self.principal.instance_id, reason=str(error))
            self.channel.close(str(error))
        except Exception as error:  # one tenant's request must not stop the gateway; also malformed requests
            self._task = None
            self.channel.fail(error)

    async def _serve(self, context: RequestContext, raw: RawRequest, retained: RetainedFrame | None) -> None:
        names = self._names(context.view)
        call = Call(context, self._upstream, self._node.served, names, self._node.responses)
        permit, size_bytes = await self._permit(context.api_key, raw), raw.size_bytes
        try:
            request = await self._decode(context, raw)
            if context.api_key == ApiKey.PRODUCE:
                if permit is not None and not _has_many_batches(request):
                    permit.release()  # its memory is that of its records, which counts as received
                    permit = None
            else:
                raw.buffer.release()  # frees the copy of the frame
                self.channel.release_request_copy()
            # A client may wait upstream for long. If too many of its instance do, a fetch is answered at once.
            if permit is not None and not permit.begin_delay():
                if context.api_key == ApiKey.FETCH:
                    request.max_wait_ms = 0
                elif context.api_key in WAIT_FOR_OTHERS:
                    permit.release()  # else members that wait would keep those out that they wait for
            response = await self._audited_response_to(call, request, size_bytes)
            if retained is not None:
                retained.release()
            self.channel.release_request_copy()
            await self._respond(call, response, raw.correlation_id)
        finally:
            call.release()
            if permit is not None:
                permit.release()
            if retained is not None:
                retained.release()

    async def _permit(self, api_key: int, raw: RawRequest) -> Permit | None:
        """Waits for room for the decoded request. None for a short one that is not counted."""
        memory = self._node.services.accounting.decode_memory
        if raw.size_bytes > decoded_at_once_bytes_max(api_key, raw.version):
            return await memory.acquire(self._instance_id, raw.size_bytes)
        return memory.short_permit(self._instance_id, raw.size_bytes) if api_key == ApiKey.FETCH else None

    async def _decode(self, context: RequestContext, raw: RawRequest) -> Any:
        api_key, items_max = context.api_key, context.api.limit.items_max
        if raw.size_bytes <= decoded_at_once_bytes_max(api_key, raw.version):
            return decode_request(api_key, raw.version, raw.buffer, raw.body, raw.end, items_max)
        context.request_bytes = raw.size_bytes
        return await decode_in_pieces(api_key, raw, items_max)

    async def _audited_response_to(self, call: Call, request: Any, size_bytes: int) -> Any:
        """Returns the response to a request, and records in the audit log what it created or deleted."""
        context = call.context
        if context.api.audit is None or not is_audited(request) or not changes.begin(context):
            return await self._response_to(call, request, size_bytes)
        # Forwarding changes the request.
        requested = await copy_request(request)
        try:
            response = await self._response_to(call, request, size_bytes)
        except MalformedRequest:
            raise  # nothing was forwarded
        except BaseException:
            # The upstream may have done it, also for a client that has gone.
            changes.record(context, requested, None, context.view.image)
            raise
        changes.record(context, await reorder_like_results(requested, response), response, context.view.image)
        return response

    async def _response_to(self, call: Call, request: Any, size_bytes: int) -> Any:
        api_key = call.context.api_key
        if api_key == ApiKey.PRODUCE:
            # Without this wait, each of many connections would add a request to the debt.
            await wait_until_paid(self, call.context.client_id, _produce_limiters)
            client = self.client(call.context.client_id)
            return await topic_calls.produce_records(call, client, self._node.storage, request, size_bytes)
        if api_key == ApiKey.FETCH:
            return await topic_calls.fetch_records(call, self.client(call.context.client_id), request)
        add = PARTITION_ADDITIONS.get(api_key)
        if add is not None:
            instance_id = self._instance_id
            lock, partitions_max = self._node.creation_lock(instance_id), self._node.partitions_max(instance_id)
            return await add(call, request, lock, partitions_max)
        return await HANDLERS[api_key](call, request)

    async def _respond(self, call: Call, response: Any, correlation_id: int) -> None:
        """Sends the response with the longest throttle time: the upstream's, or that of one of our limits."""
        context = call.context
        delay_ms, mute = self._throttle(call, response)
        if response is None:
            self._task = None
            if call.closes:
                self.channel.close("an unacknowledged produce was refused")
            else:
                self.channel.finish_without_response(delay_ms, mute)
            return
        response.throttle_time_ms = delay_ms
        # Also the refusal of a long request is long, though the upstream was not asked.
        if call.is_long or context.request_bytes:
            encoding = encode_response_in_pieces(context.api_key, context.version, response)
            while True:
                await yield_to_others()
                try:
                    next(encoding)
                except StopIteration as end:
                    body = end.value
                    break
        else:
            body = encode_response(context.api_key, context.version, response)
        self._task = None
        self.channel.respond(
            encode_response_frame(context.api_key, context.version, correlation_id, body), delay_ms, mute
        )

    def _throttle(self, call: Call, response: Any) -> tuple[int, Mute | None]:
        upstream_ms = 0 if response is None else response.throttle_time_ms
        own_ms = throttle_time_ms(self, call.context, response, 0.0)
        if call.limiter is not None and call.delay_ms > own_ms:
            throttle = Throttle(call.delay_ms, Reason.BYTES, call.limiter)
            own_ms, mute = apply_longest(self._node.services, self.client(call.context.client_id), (throttle,))
            if own_ms >= upstream_ms:
                return own_ms, mute
        return max(own_ms, upstream_ms), None

    # -- the client ---------------------------------------------------------------------------------------------------

    @property
    def _instance_id(self) -> str:
        instance_id = self.principal.instance_id
        assert instance_id is not None, "clients of a gateway belong to an instance"
        return instance_id

    def _names(self, view: TenantMetadataView) -> tuple[ToUpstream, ToTenant]:
        nodes = {node_id: NodeAddress(endpoint.host, endpoint.port) for node_id, endpoint in view.endpoints.items()}
        prefix = f"{self._instance_id}."
        return ToUpstream(prefix), ToTenant(prefix, view.cluster_id, nodes)

    def client(self, client_id: str | None) -> ClientContext:
        """Returns the state of a client id, with its limiters (`throttle_time.RequestSession`)."""
        client, view = self._client, self.view()
        if (
            client is None
            or client.metadata_version is not view.metadata_version
            or client.client_id != (client_id or "")
        ):
            client = self._client = ClientContext(self._node.services, view, self._address, client_id)
        return client

    # -- turns of the event loop --------------------------------------------------------------------------------------

    def _on_turn(self, context: RequestContext, spent_s: float) -> None:
        now_s = perf_counter()
        self.channel.turns.charge(now_s - spent_s, now_s)
        charge_time(self, context, spent_s)
        if spent_s >= LONG_TURN_S:
            self._node.services.accounting.loop_turns.record(context.api_key, self.principal.instance_id, spent_s)

    async def _wait_for_turn(self, context: RequestContext) -> None:
        services, instance_id = self._node.services, self._instance_id
        context.paused_ms += services.accounting.accountings.get_or_create(instance_id).request_time.debt_ms(
            services.clock.monotonic_ms()
        )
        await services.accounting.request_turns.enqueue(instance_id)

    def _turn_to_resume(self) -> InlineWakeup | None:
        turn: InlineWakeup | None = self.channel.turns.turn_to_resume(self._node.services.loop)
        return turn


def _produce_limiters(client: ClientContext) -> Sequence[Limiter]:
    return client.produce_limiters


def _has_many_batches(request: ProduceRequest) -> bool:
    """True if the decoded request takes much more memory than its records."""
    count = 0
    for topic in request.topic_data:
        count += 1 + len(topic.partition_data)
        if count > DECODED_AT_ONCE_ITEMS_MAX:
            return True
    return False
