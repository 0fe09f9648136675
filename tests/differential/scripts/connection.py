"""Connections before any served call: ApiVersions, unknown APIs, malformed frames (WIRE-1, 10, 14)."""

from __future__ import annotations

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.lengths import TAGGED_FIELDS_MAX, TEXT_BYTES_MAX
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest
from brokers.engine.wire.varints import encode_unsigned
from tests.differential.play import Player

SOFTWARE = {
    "good": ("librdkafka", "2.3.0"),
    "odd": ("a.b-c", "1"),
    "empty": ("", ""),
    "bad": ("-x", "1"),
    "text": ("a b", "1"),
}


def script(player: Player) -> None:
    for version in range(5):
        for kind, (name, number) in SOFTWARE.items():
            if version < 3 and kind != "good":
                continue
            player.ask(
                f"v{version}: software {kind}",
                ApiKey.API_VERSIONS,
                version,
                ApiVersionsRequest(client_software_name=name, client_software_version=number),
            )
    for version in (5, 99, 32767):
        player.ask_body(f"v{version}: unknown", ApiKey.API_VERSIONS, version, b"\xff\xff\xff", read_as=0)
    player.ask("the connection survives", ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1"))

    body = codec.encode_request(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
    player.ask_body("bytes left over", ApiKey.METADATA, 9, body + b"left over")
    player.ask_body("a body that is cut", ApiKey.METADATA, 9, body[:-2])
    player.ask_body("a null array that may not be null", ApiKey.METADATA, 0, b"\xff\xff\xff\xff")
    player.ask_body("a count beyond the frame", ApiKey.METADATA, 1, b"\x7f\xff\xff\xff")
    player.ask_body("a compact count beyond the frame", ApiKey.METADATA, 9, b"\xff\xff\xff\xff\x07\x00\x00\x00\x00")
    player.ask_body("a varint of six bytes", ApiKey.METADATA, 9, b"\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00")
    player.ask_body("an unknown tagged field", ApiKey.METADATA, 9, b"\x01\x01\x00\x00\x01\x05\x02ab")
    player.ask_body("repeated tagged fields", ApiKey.METADATA, 9, b"\x01\x01\x00\x00\x02\x05\x02ab\x05\x01a")
    player.ask_body("descending tagged fields", ApiKey.METADATA, 9, b"\x01\x01\x00\x00\x02\x07\x02ab\x05\x01a")
    player.ask_body("a tagged field beyond the frame", ApiKey.METADATA, 9, b"\x01\x01\x00\x00\x01\x05\x7fab")
    for count in (TAGGED_FIELDS_MAX, TAGGED_FIELDS_MAX + 1):
        fields = bytes([count]) + b"\x05\x00" * count
        player.ask_body(f"{count} unknown tagged fields", ApiKey.METADATA, 9, b"\x01\x01\x00\x00" + fields)
        frame = bytes.fromhex("0003 0009 00000001 0001 63") + fields + b"\x01\x01\x00\x00\x00"
        player.ask_frame_size(f"{count} tagged fields in the header", len(frame).to_bytes(4, "big") + frame)
    for length in (TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1):
        software = encode_unsigned(length + 1) + b"a" * length
        player.ask_body(f"software with a name of {length} bytes", ApiKey.API_VERSIONS, 3, software + b"\x021\x00")
    player.ask_body("a boolean of 7", ApiKey.METADATA, 4, b"\x00\x00\x00\x00\x07")

    for api_key, version in ((999, 0), (-1, 0), (ApiKey.METADATA, 13), (ApiKey.METADATA, -1), (ApiKey.FETCH, 18)):
        player.ask_frame(
            f"api {int(api_key)} version {version}", encode_request_frame(api_key, version, 1, "c", bytes(20))
        )
    for what, frame in {
        "a negative size": b"\xff\xff\xff\xff",
        "a size over the limit": b"\x7f\xff\xff\xff",
        "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(40),
        "a frame too short for a header": b"\x00\x00\x00\x03\x00\x03\x00",
        "an empty frame": b"\x00\x00\x00\x00",
        "a client id beyond the frame": bytes.fromhex("0000000c 0003 0000 00000001 7fff 6162"),
    }.items():
        player.ask_frame(what, frame)

    client_ids = {"not UTF-8": "0002ff41", "null": "ffff", "length -2": "fffe", "empty": "0000"}
    for what, client_id in client_ids.items():
        request = bytes.fromhex("0012 0000 00000001" + client_id)
        player.ask_frame_size(f"client id: {what}", len(request).to_bytes(4, "big") + request)
