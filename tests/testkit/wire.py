"""A Kafka client of the plainest kind: one connection, any call in any version, raw bytes if need be.

client = await WireClient.connect(port)
response = await client.call(ApiKey.METADATA, 12, MetadataRequest(...))
await client.send_raw(b"GET / HTTP/1.1");  assert await client.is_closed()
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from struct import Struct
from typing import Any

from brokers.engine.protocol import codec, headers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

HOST = "127.0.0.1"
TIMEOUT_S = 30.0
_SIZE = Struct(">i")


class WireClient:
    """A connection. Correlation ids count from 1. Answers are read in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str | None) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = client_id
        self._correlation = itertools.count(1)

    @classmethod
    async def connect(cls, port: int, client_id: str | None = "test", tls: ssl.SSLContext | None = None) -> WireClient:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=tls)
        return cls(reader, writer, client_id)

    async def call(self, api_key: int, version: int, request: Any) -> Any:
        """Sends a request, and returns the decoded response body."""
        await self.send(api_key, version, request)
        return await self.receive(api_key, version)

    def frame(self, api_key: int, version: int, request: Any) -> bytes:
        body = codec.encode_request(api_key, version, request)
        return headers.encode_request_frame(api_key, version, next(self._correlation), self.client_id, body)

    async def send(self, api_key: int, version: int, request: Any) -> None:
        await self.send_raw(self.frame(api_key, version, request))

    async def send_raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, api_key: int, version: int) -> Any:
        frame = await self.receive_frame()
        _, body = headers.decode_response_header(api_key, version, frame, 0, len(frame))
        return codec.decode_response(api_key, version, frame, body)

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = _SIZE.unpack(await self.reader.readexactly(_SIZE.size))
            return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """True if the broker ends the connection without another byte."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def log_in(self, username: str, secret: str, authorization_id: str = "") -> Any:
        """Signs in by SASL PLAIN; returns the answer."""
        handshake = await self.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert handshake.error_code == 0, handshake
        token = f"{authorization_id}\0{username}\0{secret}".encode()
        return await self.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))

    async def ask_as(self, username: str) -> Any:
        """Signs in by SASL EXTERNAL behind a certificate; returns the answer."""
        handshake = await self.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="EXTERNAL"))
        assert handshake.error_code == 0, handshake
        return await self.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=username.encode()))

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):  # the broker had closed it, or refused its certificate
            return
