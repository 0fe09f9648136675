"""Limits on the memory of one request, and ordinary requests within them (I.6)."""

from __future__ import annotations

import pytest

from brokers.engine.handlers.api_table import limit_of
from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.framing import FRAME_BYTES_MAX
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

VERSION = 8


def commit(topics: int, name: str = "t" * 60) -> bytes:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1 << 40, committed_metadata="m" * 100)
    request = OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=1,
        member_id="member",
        topics=[OffsetCommitRequestTopic(name=f"{name}-{number}", partitions=[partition]) for number in range(topics)],
    )
    return codec.encode_request(ApiKey.OFFSET_COMMIT, VERSION, request)


@pytest.mark.parametrize("api_key", ADVERTISED_TENANT)
def test_every_api_has_limits_within_those_of_all(api_key: ApiKey) -> None:
    limit = limit_of(api_key)
    assert 0 < limit.bytes_max <= FRAME_BYTES_MAX
    assert 0 < limit.items_max <= codec.REQUEST_ITEMS_MAX


def test_a_consumer_of_ten_thousand_topics_commits_them_in_one_request() -> None:
    body, limit = commit(10_000), limit_of(ApiKey.OFFSET_COMMIT)
    assert len(body) < limit.bytes_max
    request = codec.decode_request(ApiKey.OFFSET_COMMIT, VERSION, body, 0, len(body), limit.items_max)
    assert len(request.topics) == 10_000


def test_more_items_than_the_limit_are_refused() -> None:
    body = commit(51, "t")
    with pytest.raises(MalformedRequest):
        codec.decode_request(ApiKey.OFFSET_COMMIT, VERSION, body, 0, len(body), 100)
    assert len(codec.decode_request(ApiKey.OFFSET_COMMIT, VERSION, body, 0, len(body), 102).topics) == 51
