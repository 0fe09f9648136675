"""Largest requests of a tenant, by kind of API (I.6); the API table says which limit holds for which call.

A request over its limit is refused as a frame over `socket.request.max.bytes` is: the connection is closed without an
answer.

The limits hold what ordinary clients send: a consumer of 10,000 topics with one partition each commits 20,000 items in
half a megabyte. The brokers' own requests have the limits of the codec alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.protocol.framing import FRAME_BYTES_MAX

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


class RequestLimit(NamedTuple):
    """`items_max`: items of all arrays of the request together."""

    bytes_max: int
    items_max: int


# Record sets; their decoders count topics and partitions themselves. 10,000 topics with one partition each are 20,000.
PRODUCE: Final = RequestLimit(FRAME_BYTES_MAX, 25_000)
FETCH: Final = RequestLimit(8 * _MIB, 25_000)
# Lists of topics and partitions: a consumer of 10,000 topics with one partition each asks for 20,000 items.
LISTS: Final = RequestLimit(4 * _MIB, 25_000)
# What an administrator asks for or changes: every item is work for ZooKeeper, or a long answer.
ADMINISTRATION: Final = RequestLimit(_MIB, 12_000)
# What members of a group tell each other: subscriptions of thousands of topics, state of Kafka Streams. A member names
# some protocols, the leader a member in each item. Coordinators keep 1 MB at most of a member, and of assignments of
# a group; what is somewhat longer is answered with an error (coordinators/groups/limits.py).
JOIN: Final = RequestLimit(2 * _MIB, 1_000)
SYNC: Final = RequestLimit(2 * _MIB, 12_000)
LEAVE: Final = RequestLimit(_MIB, 3_000)
# About one group, transaction or connection.
ONE: Final = RequestLimit(64 * _KIB, 1_000)
