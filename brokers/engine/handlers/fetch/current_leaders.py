"""Current leaders in the response to a Fetch that was sent to the wrong broker (KIP-951), which saves its client a
Metadata request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokers.engine.handlers.context import View
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.fetch import FetchNodeEndpoint, FetchResponse
from brokers.engine.values import Slice

# First version whose responses can name the current leaders.
LEADERS_FROM: Final = 16
_MISLED: Final = frozenset((int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)))
# The tagged fields of a response come after throttle time, error, session id and an empty list of topics.
_TAGGED_AT: Final = 4 + 2 + 4 + 1

PartitionResult = tuple[int, int, int, int, int, int, Slice | None]


def find_leaders(
    view: View, version: int, answers: Sequence[tuple[bytes, Sequence[PartitionResult]]]
) -> tuple[dict[tuple[bytes, int], tuple[int, int]], bytes]:
    """Returns the leaders of topics requested by id, and the tagged fields, for `encode_fetch_response`."""
    leaders: dict[tuple[bytes, int], tuple[int, int]] = {}
    for key, lines in answers:
        topic = view.namespace.topic_by_id(key)
        for line in lines:
            if line[1] in _MISLED and topic is not None and line[0] < len(topic.partitions):
                known = topic.partitions[line[0]]
                leaders[key, line[0]] = known.leader, known.leader_epoch
    named = [view.endpoints.get(id) for id in sorted({leader for leader, _ in leaders.values()})]
    endpoints = [
        FetchNodeEndpoint(node_id=result.broker_id, host=result.host, port=result.port, rack=result.rack)
        for result in named
        if result is not None
    ]
    body = encode_response(ApiKey.FETCH, version, FetchResponse(node_endpoints=endpoints))
    return leaders, body[_TAGGED_AT:]
