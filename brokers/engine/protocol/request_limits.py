"""Limits on the size of tenants' requests by kind of API (I.6); the API table assigns them to the calls.

A request above its limit is refused like a frame above `socket.request.max.bytes`: the connection is closed without a
response.

The limits fit the requests of ordinary clients: a consumer of 10,000 topics with one partition each commits 20,000
items in half a megabyte. Requests of brokers have only the limits of the codec.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.protocol.framing import FRAME_BYTES_MAX

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


class RequestLimit(NamedTuple):
    """Limit of a request in bytes and in elements of all its arrays together."""

    bytes_max: int
    items_max: int


# Requests for records, whose decoders count topics and partitions: 10,000 topics with one partition each are 20,000.
PRODUCE: Final = RequestLimit(FRAME_BYTES_MAX, 25_000)
FETCH: Final = RequestLimit(8 * _MIB, 25_000)
# Lists of topics and partitions: a consumer of 10,000 topics with one partition each sends 20,000 items.
LISTS: Final = RequestLimit(4 * _MIB, 25_000)
# Administrative calls: every item is work for ZooKeeper, or causes a long response.
ADMINISTRATION: Final = RequestLimit(_MIB, 12_000)
# Data of group members: subscriptions of thousands of topics, state of Kafka Streams. A member sends some protocols,
# the leader one item per member. Coordinators accept 1 MB of metadata of a member and of assignments of a group
# (coordinators/groups/limits.py); somewhat longer requests are answered with an error.
JOIN: Final = RequestLimit(2 * _MIB, 1_000)
SYNC: Final = RequestLimit(2 * _MIB, 12_000)
LEAVE: Final = RequestLimit(_MIB, 3_000)
# Calls about one group, transaction or connection.
ONE: Final = RequestLimit(64 * _KIB, 1_000)
