"""Frames of hostile clients and of a hostile upstream: 10,000 mutated ones of each, drawn from one seed. Gateway and
upstream run in the test's own loop, so that a failure of ours is seen where it is counted.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from brokers.engine.access.principals import tenant_port_principal
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.protocol.apis import APIS, ApiKey
from brokers.engine.protocol.codec import encode_request, encode_response
from brokers.engine.protocol.fields import FIXED, FieldSpec, Names, message_class
from brokers.engine.protocol.headers import encode_request_frame, encode_response_frame
from brokers.engine.protocol.layout import slots_of
from brokers.engine.protocol.mapping import NodeAddress, ToTenant, ToUpstream
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.calls import FORWARDED_APIS
from brokers.engine.upstream.connection import Admit, Body, UpstreamLost
from brokers.engine.upstream.versions import REVIEWED
from tests.component.gateway.conftest import HOSTILE, NEIGHBOUR, TOPIC, Running, write_and_read
from tests.testkit import records
from tests.testkit.wire import HOST, WireClient

FRAMES = 10_000
CONNECTIONS = 20
SEED = 45
ANSWER_S_MAX = 0.1
PREFIXED = frozenset({Names.TOPIC, Names.GROUP, Names.TRANSACTIONAL_ID, Names.COORDINATOR_KEY})
CALLS = [(int(key), version) for key, (low, high) in sorted(REVIEWED.items()) for version in range(low, high + 1)]


class Drawn:
    """Random messages of every call, and random mutations of their bytes."""

    def __init__(self, seed: int, *texts: str) -> None:
        self.random = Random(seed)
        self._texts = ("", TOPIC, "x", "é" * 30, *texts)

    def message(self, cls: type[Any], version: int) -> Any:
        fields = {slot.name: self._value(slot.spec, version) for slot in slots_of(cls, version) if slot.is_present}
        return cls(**fields)

    def _value(self, spec: FieldSpec, version: int) -> Any:
        draw = self.random
        if spec.is_nullable(version) and draw.random() < 0.2:
            return None
        if spec.kind in FIXED:
            if spec.kind in ("uuid", "boolean", "float64"):
                return {"uuid": bytes(16), "boolean": draw.random() < 0.5, "float64": 0.0}[spec.kind]
            return draw.choice((-1, 0, 1, 2, 100))
        if spec.kind == "text":
            return draw.choice(self._texts)
        if spec.kind == "nested":
            return self.message(spec.inner, version)
        if spec.kind == "array":
            return [self._value(spec.inner, version) for _ in range(draw.randrange(4))]
        return records.batch(b"value") if draw.random() < 0.5 else draw.randbytes(20)

    def mutated(self, frame: bytes, protected: int) -> bytes:
        """Returns a changed frame; the first `protected` bytes stay."""
        draw, body = self.random, bytearray(frame)
        for _ in range(draw.randrange(1, 4)):
            position = draw.randrange(protected, max(protected + 1, len(body)))
            kind = draw.randrange(4)
            if kind == 0 and position < len(body):
                body[position] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del body[position:]
            elif kind == 2:
                body[position:position] = draw.randbytes(draw.randrange(1, 9))
            else:
                body[position : position + 4] = draw.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 4))
        return bytes(body)


async def test_mutated_requests_harm_nobody(running: Running) -> None:
    for port in running.ports.values():
        await write_and_read(port, b"before")
    drawn = Drawn(SEED)
    received: list[bytes] = []

    async def attack() -> None:
        client: WireClient | None = None
        for _ in range(FRAMES // CONNECTIONS):
            client = client or await WireClient.connect(running.ports[HOSTILE])
            api_key, version = drawn.random.choice(CALLS)
            body = encode_request(api_key, version, drawn.message(message_class(api_key, "request"), version))
            frame = drawn.mutated(encode_request_frame(api_key, version, 1, "hostile", body)[4:], 4)
            try:
                await client.send_raw(len(frame).to_bytes(4, "big") + frame)
                async with asyncio.timeout(ANSWER_S_MAX):
                    received.append(await client.receive_frame())
            except (TimeoutError, EOFError, ConnectionError):
                await client.close()
                client = None
        if client is not None:
            await client.close()

    await asyncio.gather(*(attack() for _ in range(CONNECTIONS)))
    assert len(received) > FRAMES // 20
    assert not [frame for frame in received if NEIGHBOUR.encode() in frame]
    assert running.faults == 0
    for port in running.ports.values():
        await write_and_read(port, b"after")


class Replayed:
    """An upstream that answers every request with the same frame."""

    def __init__(self) -> None:
        self.frame = b""

    async def exchange(
        self, api_key: int, version: int, client_id: str | None, body: Body, admit: Admit
    ) -> tuple[bytes, int]:
        await admit(len(self.frame))
        return self.frame, 4 + (version >= APIS[ApiKey(api_key)].flexible_from)

    async def send(self, api_key: int, version: int, client_id: str | None, body: Body) -> None:
        """Nothing is answered."""


def names_in(message: Any, version: int) -> list[str]:
    found: list[str] = []
    for slot in slots_of(type(message), version):
        value = getattr(message, slot.name)
        if not slot.is_present or value is None:
            continue
        is_list = slot.spec.kind == "array"
        item: FieldSpec = slot.spec.inner if is_list else slot.spec
        for each in value if is_list else [value]:
            if item.kind == "nested":
                found += names_in(each, version)
            elif item.names in PREFIXED or item.names is Names.FREE_TEXT:
                found.append(each)
    return found


async def test_mutated_responses_of_the_upstream_show_no_foreign_name(running: Running) -> None:
    node = running.gateway.nodes[0]
    services, upstream = node.services, Replayed()
    drawn = Drawn(SEED, f"{HOSTILE}.{TOPIC}", f"{NEIGHBOUR}.{TOPIC}")
    view = TenantMetadataView(
        services.metadata.version, services.metadata.current.image, tenant_port_principal(HOSTILE)
    )
    names = ToUpstream(f"{HOSTILE}."), ToTenant(f"{HOSTILE}.", "cluster", {1: NodeAddress(HOST, 1)})
    outcomes = {"lost": 0, "answered": 0}
    for _ in range(FRAMES):
        api_key, version = drawn.random.choice(CALLS)
        body = encode_response(api_key, version, drawn.message(message_class(api_key, "response"), version))
        whole = encode_response_frame(api_key, version, 1, body)[4:]
        upstream.frame = drawn.mutated(whole, 5)
        address: Any = HOST
        context = RequestContext(services, view, FORWARDED_APIS[api_key], version, "client", address)
        call = Call(context, upstream, node.served, names, node.responses)
        try:
            response = await call.forward(message_class(api_key, "request")())
        except UpstreamLost:
            outcomes["lost"] += 1
            continue
        finally:
            call.release()
        outcomes["answered"] += 1
        assert not [name for name in names_in(response, version) if NEIGHBOUR in name]
        encode_response(api_key, version, response)
    assert min(outcomes.values()) > FRAMES // 20, outcomes
    assert running.faults == 0
