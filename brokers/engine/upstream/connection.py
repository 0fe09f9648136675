"""Connection to a broker of the upstream cluster: connects, authenticates, and exchanges one request at a time.

Each client has a connection of its own, for two reasons. A broker handles the requests of one connection in order, as
the client may expect of its own. And the upstream mutes a connection that exceeds a quota, or waits on it for a join
or for records: on a shared one, clients of one tenant would wait for those of another.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from brokers.contract.scram_client import SCRAM_MECHANISMS, ScramClient, ScramRefused
from brokers.contract.upstream import PLAIN, Address
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame, encode_request_start
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest

CONNECT_S_MAX: Final = 10.0
# Maximum size of a response: more than the largest requested fetch (`topic_calls.FETCH_BYTES_MAX`) and one batch.
RESPONSE_BYTES_MAX: Final = 134_217_728
# Maximum size of a response before the upstream has authenticated this gateway.
UNAUTHENTICATED_BYTES_MAX: Final = 65_536
# Bytes of the buffer for received data that is not yet read.
READ_AHEAD_BYTES: Final = 65_536
# The transport may copy what the socket does not take at once.
WRITTEN_AT_ONCE_BYTES_MAX: Final = 1_048_576
_SIZE_BYTES: Final = 4
_OLDEST: Final = 0
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 0
CLIENT_ID: Final = "penstock-gateway"

# Body of a request; a long one is sent in parts.
Body = bytes | list[bytes]
# Waits until a response of this size may be received.
Admit = Callable[[int], Awaitable[object]]


class UpstreamLost(Exception):
    """The upstream did not answer, or not as the protocol requires; the outcome of the request is unknown."""


@dataclass(frozen=True, slots=True)
class UpstreamLogin:
    """Security of connections to the upstream cluster; without `username` the gateway does not authenticate itself."""

    tls: ssl.SSLContext | None = None
    username: str | None = None
    password: str = ""
    mechanism: str = PLAIN

    def __repr__(self) -> str:
        return f"UpstreamLogin({self.username})"


class UpstreamConnection:
    """An authenticated connection. `versions` has the lowest and highest version of each call that the broker serves,
    by api key.
    """

    __slots__ = ("_correlation_id", "_reader", "_writer", "versions")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self.versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, address: Address, login: UpstreamLogin) -> UpstreamConnection:
        """Connects and authenticates. Raises UpstreamLost."""
        host, port = address
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                reader, writer = await asyncio.open_connection(
                    host,
                    port,
                    ssl=login.tls,
                    server_hostname=host if login.tls is not None else None,
                    limit=READ_AHEAD_BYTES,
                )
                connection = cls(reader, writer)
                await connection._authenticate(login)
                return connection
        except TimeoutError:
            raise UpstreamLost(f"{host}:{port} does not answer") from None
        except OSError as error:  # ssl's errors are OSErrors
            raise UpstreamLost(f"{host}:{port}: {error.strerror or error}") from error

    async def _authenticate(self, login: UpstreamLogin) -> None:
        """Requests the broker's versions, and authenticates the gateway."""
        versions = await self._request(ApiKey.API_VERSIONS, _OLDEST, ApiVersionsRequest())
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}
        if login.username is None:
            return
        await self._request(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=login.mechanism))
        if login.mechanism not in SCRAM_MECHANISMS:
            await self._exchange_token(f"\0{login.username}\0{login.password}".encode())
            return
        scram = ScramClient(login.mechanism, login.username, login.password)
        try:
            server_first = await self._exchange_token(scram.first_message())
            scram.verify(await self._exchange_token(scram.final_message(server_first)))
        except ScramRefused as error:
            self.close()
            raise UpstreamLost(f"authentication by {login.mechanism}: {error}") from error

    async def _exchange_token(self, token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        response = await self._request(ApiKey.SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, request)
        return bytes(response.auth_bytes)

    async def _request(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Sends a request of the gateway's own and returns the response.

        Raises UpstreamLost for an error code, without the upstream's message, which may contain internal names.
        """
        body = encode_request(api_key, version, request)
        frame, start = await self.exchange(api_key, version, CLIENT_ID, body, bytes_max=UNAUTHENTICATED_BYTES_MAX)
        try:
            response = decode_response(api_key, version, frame, start, len(frame))
        except MalformedRequest as error:
            self.close()
            raise UpstreamLost("the upstream sent a malformed response") from error
        if response.error_code:
            self.close()
            raise UpstreamLost(f"the upstream refused {api_key.name}: {_name_of(response.error_code)}")
        return response

    @property
    def is_closed(self) -> bool:
        """True if the upstream has closed the connection, or a failed request did."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def exchange(
        self,
        api_key: int,
        version: int,
        client_id: str | None,
        body: Body,
        *,
        admit: Admit | None = None,
        bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> tuple[bytes, int]:
        """Sends a request. Returns the frame of its response without its size, and the position of the body.

        A request that is cancelled, or whose response is missing or invalid, closes the connection, since the next
        response might belong to another request. Raises UpstreamLost.
        """
        try:
            await self._send(api_key, version, client_id, body)
            size_bytes = int.from_bytes(await self._reader.readexactly(_SIZE_BYTES), "big", signed=True)
            if not _SIZE_BYTES <= size_bytes <= bytes_max:
                raise UpstreamLost(f"the upstream announced a response of {size_bytes} bytes")
            if admit is not None:
                await admit(size_bytes)
            frame = await self._reader.readexactly(size_bytes)
            correlation_id, start = decode_response_header(api_key, version, frame, 0, size_bytes)
            if correlation_id != self._correlation_id:
                raise UpstreamLost("the upstream answered another request")
        except (OSError, EOFError, MalformedRequest) as error:
            self.close()
            raise UpstreamLost("the upstream closed the connection") from error
        except BaseException:
            self.close()
            raise
        return frame, start

    async def send(self, api_key: int, version: int, client_id: str | None, body: Body) -> None:
        """Sends a request that has no response. Raises UpstreamLost."""
        try:
            await self._send(api_key, version, client_id, body)
        except OSError as error:
            self.close()
            raise UpstreamLost("the upstream closed the connection") from error
        except BaseException:
            self.close()
            raise

    async def _send(self, api_key: int, version: int, client_id: str | None, body: Body) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        if isinstance(body, bytes):
            self._writer.write(encode_request_frame(api_key, version, self._correlation_id, client_id, body))
            await self._writer.drain()
            return
        body_bytes = sum(map(len, body))
        self._writer.write(encode_request_start(api_key, version, self._correlation_id, client_id, body_bytes))
        for part in body:
            for begin in range(0, len(part), WRITTEN_AT_ONCE_BYTES_MAX):
                self._writer.write(memoryview(part)[begin : begin + WRITTEN_AT_ONCE_BYTES_MAX])
                await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


def _name_of(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
