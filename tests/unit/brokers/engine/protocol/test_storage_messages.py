"""AllotStorage: a controller of an earlier version does not send how much of the amount is the broker's own."""

from __future__ import annotations

from brokers.engine.capacity.ledger import UNKNOWN
from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.broker_reports import AllotStorageResponse, StorageChange

CHANGE = StorageChange(
    instance_id="ins-aaaaaaaa",
    number=3,
    delta_bytes=-5,
    used_bytes=700,
    free_bytes=300,
    is_full=False,
    reported_bytes=650,
    counted_bytes=40,
)


def test_reported_and_counted_bytes_are_encoded_from_version_1_on() -> None:
    answer = AllotStorageResponse(changes=[CHANGE])
    sent = {}
    for version in (0, 1):
        raw = codec.encode_response(ApiKey.ALLOT_STORAGE, version, answer)
        sent[version] = codec.decode_response(ApiKey.ALLOT_STORAGE, version, raw).changes[0]

    assert sent[1] == CHANGE
    assert sent[0].reported_bytes == sent[0].counted_bytes == UNKNOWN
    assert (sent[0].used_bytes, sent[0].delta_bytes) == (700, -5)
