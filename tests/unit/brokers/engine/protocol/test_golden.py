"""Our bytes against the recorded bytes of other codecs (`record_golden` made them): no message may change unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import APIS

from .samples import VARIANTS, sample

GOLDEN = Path(__file__).parents[4] / "golden" / "protocol"
# No other codec has AlterPartition 0 and 1, or the calls between our own brokers.
LINES_MISSING = {
    56: 2 * 2 * len(VARIANTS),
    20_001: 2 * 2 * len(VARIANTS),
    **dict.fromkeys((20_002, 20_003, 20_004, 20_005), 2 * len(VARIANTS)),
}


@pytest.mark.parametrize("api_key", sorted(APIS))
def test_every_message_has_the_recorded_bytes(api_key: int) -> None:
    api = APIS[api_key]
    lines = (GOLDEN / f"{api.key.name.lower()}.txt").read_text().splitlines()
    assert len(lines) == 2 * len(VARIANTS) * (api.version_max + 1) - LINES_MISSING.get(api_key, 0)
    for line in lines:
        direction, version_text, variant, written = line.split()
        version = int(version_text)
        body = b"" if written == "-" else bytes.fromhex(written)
        value = sample(api_key, version, direction, variant)  # type: ignore[arg-type]
        if direction == "request":
            assert codec.encode_request(api_key, version, value) == body
            assert codec.decode_request(api_key, version, body, 0, len(body)) == value
        else:
            assert codec.encode_response(api_key, version, value) == body
            assert codec.decode_response(api_key, version, body) == value
