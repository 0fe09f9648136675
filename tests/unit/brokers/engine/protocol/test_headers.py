"""Headers in front of bodies (WIRE-7, WIRE-8, WIRE-10, VEC-7, VEC-8)."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import APIS, ApiKey
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest, UnsupportedApi
from brokers.engine.protocol.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_frame,
    encode_response_frame,
)
from brokers.engine.protocol.messages.sasl import ApiVersion, ApiVersionsResponse

EVERY_VERSION = [(key, version) for key, api in APIS.items() for version in range(api.version_max + 1)]


def test_the_published_request_frame_is_written_and_read() -> None:
    """VEC-7."""
    frame = bytes.fromhex("0000000b 0012 0000 00000007 0001 63")
    assert encode_request_frame(ApiKey.API_VERSIONS, 0, 7, "c", b"") == frame
    assert decode_request_header(frame, 4, len(frame)) == (18, 0, 7, "c", len(frame))


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_layout() -> None:
    """VEC-8, WIRE-15: the body is not read, so the header must be readable in an unknown version."""
    frame = encode_request_frame(ApiKey.API_VERSIONS, 99, 0x01020304, "c", b"whatever a future version says")
    api_key, version, correlation_id, client_id, _ = decode_request_header(frame, 4, len(frame))
    assert (api_key, version, client_id) == (ApiKey.API_VERSIONS, 99, "c")
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4)],
    )
    body = codec.encode_response(ApiKey.API_VERSIONS, 0, answer)
    assert encode_response_frame(ApiKey.API_VERSIONS, 0, correlation_id, body) == bytes.fromhex(
        "00000010 01020304 0023 00000001 0012 0000 0004"
    )


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_request_headers_are_what_kio_writes(api_key: int, version: int) -> None:
    flexible = version >= APIS[api_key].flexible_from
    cls = KioHeaderV2 if flexible else KioHeaderV1
    for client_id in ("rdkafka", None, ""):
        out = io.BytesIO()
        entity_writer(cls)(
            out,
            cls(
                request_api_key=i16(api_key),
                request_api_version=i16(version),
                correlation_id=i32(-5),
                client_id=client_id,
            ),
        )
        frame = encode_request_frame(api_key, version, -5, client_id, b"body")
        assert frame[4:-4] == out.getvalue()
        assert decode_request_header(frame, 4, len(frame)) == (api_key, version, -5, client_id, len(frame) - 4)


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_response_headers_end_in_tagged_fields_from_the_flexible_version_on(api_key: int, version: int) -> None:
    """WIRE-8: response headers of ApiVersions never have tagged fields."""
    frame = encode_response_frame(api_key, version, 9, b"body")
    flexible = version >= APIS[api_key].flexible_from and api_key != ApiKey.API_VERSIONS
    assert frame == (len(frame) - 4).to_bytes(4, "big") + bytes((0, 0, 0, 9)) + (b"\x00" if flexible else b"") + b"body"
    assert decode_response_header(api_key, version, frame, 4, len(frame)) == (9, len(frame) - 4)


@pytest.mark.parametrize(("api_key", "version"), [(4, 0), (99, 0), (-1, 0), (0, 12), (3, -1), (1, 18), (32767, 32767)])
def test_a_call_that_does_not_exist_is_refused(api_key: int, version: int) -> None:
    """WIRE-10."""
    frame = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(12)
    with pytest.raises(UnsupportedApi):
        decode_request_header(frame, 0, len(frame))


def test_a_client_id_of_length_minus_two_reads_as_null() -> None:
    """Observed of 3.9.1."""
    frame = bytes.fromhex("0003 0000 00000001 fffe")
    assert decode_request_header(frame, 0, len(frame))[3] is None


def test_a_client_id_that_is_not_utf_8_is_accepted() -> None:
    """Observed of 3.9.1."""
    frame = bytes.fromhex("0003 0000 00000001 0002 ff41")
    assert decode_request_header(frame, 0, len(frame))[3] == "�A"


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0003",
        "0003 0000 00000001",
        "0003 0000 00000001 7fff 41",
        "0003 0009 00000001 ffff",
        "0003 0009 00000001 ffff 05",
    ],
    ids=["empty", "key alone", "no client id", "long client id", "no tags", "tags missing"],
)
def test_a_header_that_the_frame_cuts_is_refused(frame: str) -> None:
    data = bytes.fromhex(frame)
    with pytest.raises(MalformedRequest):
        decode_request_header(data + bytes(40), 0, len(data))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 0009 00000001 0001 63 02 05 01 aa 01 00") + b"body"
    assert decode_request_header(frame, 0, len(frame)) == (3, 9, 1, "c", len(frame) - 4)


@given(st.binary(max_size=40))
def test_noise_in_place_of_a_header_is_read_or_refused(data: bytes) -> None:
    for read in (
        lambda: decode_request_header(data, 0, len(data)),
        lambda: decode_response_header(3, 9, data, 0, len(data)),
    ):
        try:
            read()
        except MalformedRequest:
            continue
