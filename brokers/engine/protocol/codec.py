"""Decoders and encoders of any message in any version, compiled on first use from the declarations in `messages/`.

Servers use `decode_request` and `encode_response`; clients (the broker's own client, tests, the differential player)
use `encode_request` and `decode_response`. These handle bodies only; headers are in `headers`.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Any, NamedTuple

from brokers.engine.protocol.apis import APIS
from brokers.engine.protocol.compile_decode import (
    Decoder,
    PiecewiseDecoder,
    compile_decoder,
    compile_piecewise_decoder,
)
from brokers.engine.protocol.compile_encode import (
    Encoder,
    PiecewiseEncoder,
    compile_encoder,
    compile_piecewise_encoder,
)
from brokers.engine.protocol.errors import UnsupportedApi
from brokers.engine.protocol.fields import message_class
from brokers.engine.protocol.layout import item_bytes_min

# Maximum number of elements of all arrays of one request together. An element may take a single byte on the wire but a
# hundred in memory, so a limit in bytes alone would let a frame of 100 MB allocate gigabytes.
REQUEST_ITEMS_MAX = 500_000
# Responses come from brokers, which are trusted more than clients.
RESPONSE_ITEMS_MAX = 10_000_000
# Requests of tenants that are longer, or may have more elements, are decoded piecewise.
DECODED_AT_ONCE_BYTES_MAX = 32 * 1024
DECODED_AT_ONCE_ITEMS_MAX = 2_000

_request_decoders: dict[tuple[int, int, int], Decoder] = {}
_piecewise_decoders: dict[tuple[int, int, int], PiecewiseDecoder] = {}
_request_encoders: dict[tuple[int, int], Encoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}
_piecewise_encoders: dict[tuple[int, int], PiecewiseEncoder] = {}
_response_encoders: dict[tuple[int, int], Encoder] = {}


def decode_request(
    api_key: int,
    version: int,
    buffer: bytes | bytearray | memoryview,
    offset: int,
    end: int,
    items_max: int = REQUEST_ITEMS_MAX,
) -> Any:
    """Decodes the request body in `buffer[offset:end]`; trailing bytes are ignored (as by Kafka 3.9.1).

    Strings become `str` (invalid UTF-8 becomes replacement characters), bytes and records are copied. Fields that the
    version does not have get their defaults. Raises MalformedRequest, and UnsupportedApi for a version
    that `apis` does not have.
    """
    decoder = _request_decoders.get((api_key, version, items_max))
    if decoder is None:
        _check_version(api_key, version)
        decoder = compile_decoder(message_class(api_key, "request"), APIS[api_key], version, items_max)
        _request_decoders[api_key, version, items_max] = decoder
    return decoder(buffer, offset, end)


@cache
def decoded_at_once_bytes_max(api_key: int, version: int) -> int:
    """Returns the size in bytes up to which a request is decoded at once. The size bounds the number of elements:
    decoding an element takes a microsecond, and it may be as short as two bytes.
    """
    _check_version(api_key, version)
    is_flexible = version >= APIS[api_key].flexible_from
    width_bytes = item_bytes_min(message_class(api_key, "request"), version, is_flexible)
    if width_bytes is None:
        return DECODED_AT_ONCE_BYTES_MAX
    return min(DECODED_AT_ONCE_BYTES_MAX, DECODED_AT_ONCE_ITEMS_MAX * width_bytes)


def decode_request_in_pieces(
    api_key: int,
    version: int,
    buffer: bytes | bytearray | memoryview,
    offset: int,
    end: int,
    items_max: int = REQUEST_ITEMS_MAX,
) -> Generator[None, None, Any]:
    """Decodes a request like `decode_request`, in a generator that yields after each piece of a long message."""
    decoder = _piecewise_decoders.get((api_key, version, items_max))
    if decoder is None:
        _check_version(api_key, version)
        decoder = compile_piecewise_decoder(message_class(api_key, "request"), APIS[api_key], version, items_max)
        _piecewise_decoders[api_key, version, items_max] = decoder
    return decoder(buffer, offset, end)


class EncodedResponse(NamedTuple):
    """A response that is already encoded; `throttled_ms` is the throttle time in it."""

    body: bytes
    throttled_ms: int = 0


def encode_response(api_key: int, version: int, message: Any) -> bytes:
    """Encodes the body of a response. Fields that the version does not have are left out."""
    if type(message) is EncodedResponse:
        return message.body
    encoder = _response_encoders.get((api_key, version))
    if encoder is None:
        _check_version(api_key, version)
        encoder = compile_encoder(message_class(api_key, "response"), APIS[api_key], version)
        _response_encoders[api_key, version] = encoder
    return encoder(message)


def encode_response_in_pieces(api_key: int, version: int, message: Any) -> Generator[None, None, bytes]:
    """Encodes a response like `encode_response`, in a generator that yields after each piece of a long message."""
    encoder = _piecewise_encoders.get((api_key, version))
    if encoder is None:
        _check_version(api_key, version)
        encoder = compile_piecewise_encoder(message_class(api_key, "response"), APIS[api_key], version)
        _piecewise_encoders[api_key, version] = encoder
    return encoder(message)


def encode_request(api_key: int, version: int, message: Any) -> bytes:
    """Encodes the body of a request. Fields that the version does not have are left out."""
    encoder = _request_encoders.get((api_key, version))
    if encoder is None:
        _check_version(api_key, version)
        encoder = compile_encoder(message_class(api_key, "request"), APIS[api_key], version)
        _request_encoders[api_key, version] = encoder
    return encoder(message)


def decode_response(
    api_key: int, version: int, buffer: bytes | bytearray | memoryview, offset: int = 0, end: int | None = None
) -> Any:
    """Decodes the response body in `buffer[offset:end]`. Raises MalformedRequest."""
    decoder = _response_decoders.get((api_key, version))
    if decoder is None:
        _check_version(api_key, version)
        decoder = compile_decoder(message_class(api_key, "response"), APIS[api_key], version, RESPONSE_ITEMS_MAX)
        _response_decoders[api_key, version] = decoder
    return decoder(buffer, offset, len(buffer) if end is None else end)


def _check_version(api_key: int, version: int) -> None:
    api = APIS.get(api_key)
    if api is None or not 0 <= version <= api.version_max:
        raise UnsupportedApi(f"no version {version} of api key {api_key}")
