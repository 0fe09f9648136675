"""One connection's conversation: who it is, what it sees, and the frame it is waiting to have answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from brokers.engine.access.authorizer import Address, owners_address, peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.client import Client
from brokers.engine.handlers.context import Call, Channel, Engine, Handler, View
from brokers.engine.handlers.raw_request import RawRequest
from brokers.engine.protocol.apis import APIS, ApiKey, is_served
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.errors import UnsupportedApi
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame


class FastCodec(NamedTuple):
    """A call with a decoder of its own, and the versions it is served in on every listener."""

    handle: Callable[..., None]
    version_min: int
    version_max: int


class DispatchTable(NamedTuple):
    """Which function answers which call, by api key. Handed in, because handlers name the session they answer."""

    fast_codec: Mapping[int, FastCodec]
    # The same calls in the versions before: their record sets are converted on the way.
    legacy: Mapping[int, Callable[..., None]]
    handlers: Mapping[int, Handler]


class Session:
    """`network.interfaces.Session` of an identified client. `cancel` ends what waits when the connection goes;
    `hurry` has it answered when the client sends something more instead of waiting.
    """

    __slots__ = (
        "_address",
        "_advertised",
        "_client",
        "_fast_codec_handlers",
        "_handlers",
        "_legacy_handlers",
        "_view",
        "cancel",
        "channel",
        "engine",
        "frame_bytes_max",
        "hurry",
        "principal",
    )

    def __init__(
        self,
        engine: Engine,
        channel: Channel,
        principal: Principal,
        advertised: Mapping[ApiKey, tuple[int, int]],
        dispatch_table: DispatchTable,
        address: str | None = None,
    ) -> None:
        """`address` of the client, when it is not the peer but somebody whose calls the peer passes on."""
        self.engine = engine
        self.channel = channel
        self.principal = principal
        self.frame_bytes_max = engine.frame_bytes_max
        self.cancel: Callable[[], object] | None = None
        self.hurry: Callable[[], object] | None = None
        self._advertised = dict(advertised)
        self._fast_codec_handlers, self._legacy_handlers, self._handlers = dispatch_table
        self._address: Address
        if principal.internal and address is None:
            self._address = owners_address(channel.peer_host)
        else:
            self._address = peer_address(address or channel.peer_host)
        self._view: View | None = None
        self._client: Client | None = None

    def view(self) -> View:
        engine = self.engine
        view = self._view
        if view is None or view.metadata_version is not engine.metadata_version:
            view = self._view = View(engine.metadata_version, engine.current.image, self.principal)
        return view

    def client(self, client_id: str | None) -> Client:
        client = self._client
        if (
            client is None
            or client.metadata_version is not self.engine.metadata_version
            or client.client_id != (client_id or "")
        ):
            client = self._client = Client(self.engine, self.view(), self._address, client_id)
        return client

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        api_key, version, correlation_id, client_id, body = decode_request_header(buffer, start, end)
        fast_codec = self._fast_codec_handlers.get(api_key)
        if fast_codec is not None and fast_codec.version_min <= version <= fast_codec.version_max:
            self.engine.totals.requests[api_key] += 1
            fast_codec.handle(self, RawRequest(version, correlation_id, client_id, buffer, body, start, end))
            return
        if not is_served(self._advertised, api_key, version):
            raise UnsupportedApi(f"version {version} of api key {api_key} is not served here")
        self.engine.totals.requests[api_key] += 1
        if fast_codec is not None:
            raw = RawRequest(version, correlation_id, client_id, buffer, body, start, end)
            self._legacy_handlers[api_key](self, raw)
            return
        request = None
        if api_key != ApiKey.API_VERSIONS:
            request = decode_request(api_key, version, buffer, body, end)
        else:
            version, request = decode_api_versions(version, buffer, body, end)
        call = Call(self.engine, self.view(), api_key, version, client_id or "", self._address)
        answer = self._handlers[api_key](call, request)
        if hasattr(answer, "__await__"):
            self.cancel = self.engine.spawn(self._finish(call, correlation_id, answer)).cancel
        else:
            self._respond(call, correlation_id, answer)

    async def _finish(self, call: Call, correlation_id: int, answer: Any) -> None:
        try:
            response = await answer
        except Exception as error:  # one tenant's request must not take the others' broker down
            self.cancel = None
            self.channel.fail(error)
            return
        self.cancel = None
        self._respond(call, correlation_id, response)

    def _respond(self, call: Call, correlation_id: int, response: Any) -> None:
        body = encode_response(call.api_key, call.version, response)
        self.channel.respond(encode_response_frame(call.api_key, call.version, correlation_id, body))

    def on_more(self) -> None:
        hurry, self.hurry = self.hurry, None
        if hurry is not None:
            hurry()

    def on_closed(self) -> None:
        cancel, self.cancel = self.cancel, None
        if cancel is not None:
            cancel()


def decode_api_versions(version: int, buffer: memoryview, body: int, end: int) -> tuple[int, Any]:
    """WIRE-15: a version we do not know is not parsed; the answer is in version 0 and the request is None."""
    if not 0 <= version <= APIS[ApiKey.API_VERSIONS].version_max:
        return 0, None
    return version, decode_request(ApiKey.API_VERSIONS, version, buffer, body, end)
