"""Request and response headers (WIRE-7, WIRE-8).

The client id is a classic string with an int16 length even in flexible requests. Responses of ApiVersions have the
oldest header in every version, because the client does not know the broker's versions yet.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from brokers.engine.protocol.apis import APIS, NEVER_FLEXIBLE, ApiKey
from brokers.engine.protocol.errors import MalformedRequest, UnsupportedApi
from brokers.engine.protocol.lengths import skip_tagged_fields

_REQUEST: Final = Struct(">hhih")
_RESPONSE_V0: Final = Struct(">ii")
_RESPONSE_V1: Final = Struct(">iix")
_CORRELATION: Final = Struct(">i")

# First version whose request header ends in tagged fields, by api key.
_FLEXIBLE_FROM: Final = [NEVER_FLEXIBLE] * (max(APIS) + 1)
_VERSIONS_MAX: Final = [-1] * (max(APIS) + 1)
for _api in APIS.values():
    _FLEXIBLE_FROM[_api.key] = _api.flexible_from
    _VERSIONS_MAX[_api.key] = _api.version_max


def decode_request_header(
    buffer: bytes | bytearray | memoryview, offset: int, end: int
) -> tuple[int, int, int, str | None, int]:
    """Decodes the header of a request frame without its size.

    Returns `(api key, version, correlation id, client id or None, position of the body)`. An unknown version of
    ApiVersions is accepted, because it is answered (WIRE-15). Invalid UTF-8 in the client id becomes replacement
    characters. Raises UnsupportedApi for an unknown api key or version, MalformedRequest for any other fault.
    """
    if end - offset < 10:
        raise MalformedRequest(f"{end - offset} bytes cannot hold a request header")
    api_key, version, correlation_id, length = _REQUEST.unpack_from(buffer, offset)
    is_known = 0 <= api_key < len(_VERSIONS_MAX) and 0 <= version <= _VERSIONS_MAX[api_key]
    if not is_known and api_key != ApiKey.API_VERSIONS:
        raise UnsupportedApi(f"no version {version} of api key {api_key}")
    position = offset + 10
    client_id: str | None = None
    if length >= 0:
        client_id_end = position + length
        if client_id_end > end:
            raise MalformedRequest("the client id runs past the frame")
        client_id = str(buffer[position:client_id_end], "utf-8", "replace")
        position = client_id_end
    if version >= _FLEXIBLE_FROM[api_key]:
        if position >= end:
            raise MalformedRequest("the header has no tagged fields section")
        if buffer[position]:
            position = skip_tagged_fields(buffer, position, end)
        else:
            position += 1
    return api_key, version, correlation_id, client_id, position


def encode_response_frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Returns a whole response frame: size, header, body."""
    if version >= _FLEXIBLE_FROM[api_key] and api_key != ApiKey.API_VERSIONS:
        return _RESPONSE_V1.pack(len(body) + 5, correlation_id) + body
    return _RESPONSE_V0.pack(len(body) + 4, correlation_id) + body


def encode_request_frame(api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """Returns a whole request frame: size, header, body."""
    return encode_request_start(api_key, version, correlation_id, client_id, len(body)) + body


def encode_request_start(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body_bytes: int
) -> bytes:
    """Returns the beginning of a request frame before a body of `body_bytes`: size and header."""
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if 0 <= api_key < len(_FLEXIBLE_FROM) and version >= _FLEXIBLE_FROM[api_key]:
        header += b"\x00"
    return _CORRELATION.pack(len(header) + body_bytes) + header


def decode_response_header(
    api_key: int, version: int, buffer: bytes | bytearray | memoryview, offset: int, end: int
) -> tuple[int, int]:
    """Decodes the header of a response frame without its size into `(correlation id, position of the body)`.

    Raises MalformedRequest.
    """
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buffer, offset)
    except struct_error as error:
        raise MalformedRequest("a response too short for its header") from error
    position = offset + 4
    if position > end:
        raise MalformedRequest("a response too short for its header")
    if version >= _FLEXIBLE_FROM[api_key] and api_key != ApiKey.API_VERSIONS:
        position = skip_tagged_fields(buffer, position, end)
    return correlation_id, position
