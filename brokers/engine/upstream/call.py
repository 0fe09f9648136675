"""One request of a client on its way to the upstream broker and back."""

from __future__ import annotations

from typing import Any, Final, Protocol

from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.context import ACTIVE, DELETING, RequestContext
from brokers.engine.protocol.apis import APIS, ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.compile_decode import PiecewiseDecoder, compile_piecewise_decoder
from brokers.engine.protocol.compile_encode import PartsEncoder, compile_parts_encoder
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest
from brokers.engine.protocol.fields import message_class
from brokers.engine.protocol.mapping import ForeignName, ToTenant, ToUpstream, mapping_of
from brokers.engine.scheduling.time_slice import yield_to_others
from brokers.engine.throttling.charging import Limiter
from brokers.engine.upstream.connection import Admit, Body, UpstreamLost
from brokers.engine.upstream.response_memory import ResponseMemory, ResponsePermit
from brokers.engine.upstream.versions import Versions
from instances import naming

# Elements of all lists of one response.
RESPONSE_ITEMS_MAX: Final = 1_000_000
# Longer responses are decoded and encoded in pieces.
SYNCHRONOUS_BYTES_MAX: Final = 16 * 1024
UNKNOWN_TOPIC: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NO_THROTTLE_MS: Final = 0
# State of an instance whose produces are refused.
FROZEN: Final = "frozen"

_piecewise_decoders: dict[tuple[int, int], PiecewiseDecoder] = {}
_parts_encoders: dict[tuple[int, int], PartsEncoder] = {}


class UpstreamExchange(Protocol):
    """Sends a request over the client's own connection to the upstream broker (`session.ClientUpstream`)."""

    async def exchange(
        self, api_key: int, version: int, client_id: str | None, body: Body, admit: Admit
    ) -> tuple[bytes, int]: ...

    async def send(self, api_key: int, version: int, client_id: str | None, body: Body) -> None: ...


class Call:
    """A request in processing. `limiter` and `delay_ms` are the byte limit that its client has exceeded, and the delay
    that follows; `closes` is True if the connection has to be closed after the response.
    """

    __slots__ = (
        "_permit", "_responses", "_to_tenant", "_to_upstream", "_upstream", "closes", "context", "delay_ms", "is_long",
        "limiter", "served", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        context: RequestContext,
        upstream: UpstreamExchange,
        served: Versions,
        names: tuple[ToUpstream, ToTenant],
        responses: ResponseMemory,
    ) -> None:
        self.context = context
        self.served = served
        self._upstream = upstream
        self._to_upstream, self._to_tenant = names
        self._responses = responses
        self._permit: ResponsePermit | None = None
        self.size_bytes = 0
        self.is_long = False
        self.limiter: Limiter | None = None
        self.delay_ms = NO_THROTTLE_MS
        self.closes = False

    # -- rights -------------------------------------------------------------------------------------------------------

    def denial_code(
        self, resource_type: ResourceType, name: str = CLUSTER_NAME, operation: AclOperation | None = None
    ) -> int:
        """Returns the error code if the client may not make this call for a resource; 0 if it may."""
        return self.context.denial(resource_type, name, operation)

    def topic_refusal_code(self, name: str) -> int:
        """Returns the error code with which the call is refused for a topic; 0 if the topic may be forwarded.

        Reasons are missing rights, the state of the instance, and a name that no topic can have.
        """
        code = self.denial_code(ResourceType.TOPIC, name)
        if code:
            return code
        view = self.context.view
        state = ACTIVE if view.internal else view.state  # the control plane deletes the topics of a deleted instance
        if state == DELETING or not naming.is_valid_topic_name(name):
            return UNKNOWN_TOPIC
        is_produce = self.context.api.allow_list.operation is Operation.PRODUCE
        return int(ErrorCode.POLICY_VIOLATION) if is_produce and state == FROZEN else 0

    # -- forwarding ---------------------------------------------------------------------------------------------------

    async def forward(self, request: Any) -> Any:
        """Sends the request in the upstream's names; returns the response in the tenant's.

        Raises:
            UpstreamLost: the upstream did not answer, or its response has names of another instance.
            MalformedRequest: a name in the request is too long.
        """
        return await self.request(self.context.api_key, self.context.version, request)

    async def request(self, api_key: int, version: int, request: Any) -> Any:
        """Sends a request of any call to the upstream on behalf of this one; otherwise like `forward`."""
        body = await self._encode(api_key, version, request)
        frame, start = await self._upstream.exchange(api_key, version, self.context.client_id, body, self._admit)
        try:
            response = await self._decode(api_key, version, frame, start)
            for _ in mapping_of(api_key, "response", version).in_pieces(response, self._to_tenant):
                await yield_to_others()
        except MalformedRequest as error:
            raise UpstreamLost("the upstream sent a malformed response") from error
        except ForeignName as error:
            raise UpstreamLost("the upstream answered with a name of another instance") from error
        self.size_bytes = len(frame)
        self.is_long = len(frame) > SYNCHRONOUS_BYTES_MAX
        return response

    async def send(self, request: Any) -> None:
        """Sends a request that has no response, a Produce with acks=0."""
        context = self.context
        body = await self._encode(context.api_key, context.version, request)
        await self._upstream.send(context.api_key, context.version, context.client_id, body)

    async def _encode(self, api_key: int, version: int, request: Any) -> Body:
        for _ in mapping_of(api_key, "request", version).in_pieces(request, self._to_upstream):
            await yield_to_others()
        if not self.context.request_bytes:
            return encode_request(api_key, version, request)
        encoding = _parts_encoder(api_key, version)(request)
        while True:
            await yield_to_others()
            try:
                next(encoding)
            except StopIteration as end:
                body: list[bytes] = end.value
                return body

    async def _decode(self, api_key: int, version: int, frame: bytes, start: int) -> Any:
        if len(frame) <= SYNCHRONOUS_BYTES_MAX:
            return decode_response(api_key, version, frame, start, len(frame))
        return await decode_long_response(api_key, version, frame, start)

    async def _admit(self, size_bytes: int) -> None:
        """Waits until the responses of the instance and its tenant leave memory for one more of `size_bytes`."""
        self.release()
        instance_id = self.context.view.instance_id
        assert instance_id is not None, "clients of a gateway belong to an instance"
        self._permit = await self._responses.acquire(instance_id, size_bytes)

    def release(self) -> None:
        """Frees the memory of the response. May be repeated."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.release()


async def decode_long_response(api_key: int, version: int, frame: bytes, start: int) -> Any:
    """Decodes a response in pieces. Raises MalformedRequest."""
    decoding = _piecewise_decoder(api_key, version)(frame, start, len(frame))
    while True:
        await yield_to_others()
        try:
            next(decoding)
        except StopIteration as end:
            return end.value


def _piecewise_decoder(api_key: int, version: int) -> PiecewiseDecoder:
    decoder = _piecewise_decoders.get((api_key, version))
    if decoder is None:
        cls = message_class(api_key, "response")
        decoder = compile_piecewise_decoder(cls, APIS[ApiKey(api_key)], version, RESPONSE_ITEMS_MAX)
        _piecewise_decoders[api_key, version] = decoder
    return decoder


def _parts_encoder(api_key: int, version: int) -> PartsEncoder:
    encoder = _parts_encoders.get((api_key, version))
    if encoder is None:
        encoder = compile_parts_encoder(message_class(api_key, "request"), APIS[ApiKey(api_key)], version)
        _parts_encoders[api_key, version] = encoder
    return encoder
