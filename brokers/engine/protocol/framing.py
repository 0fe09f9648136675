"""Sizes of frames: an int32 size, then the contents of that size in bytes (WIRE-1); and limits on the size of tenants'
requests by kind of API (I.6), which the API table assigns to the calls.

After a negative size or one above the limit the connection must be closed without a response. The limits fit the
requests of ordinary clients: a consumer of 10,000 topics with one partition each commits 20,000 items in half a
megabyte. Requests of brokers have only the limits of the codec.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.protocol.errors import FrameTooLarge, MalformedRequest

SIZE_BYTES: Final = 4
# Size of the api key, with which the contents of a frame begin.
API_KEY_BYTES: Final = 2
# Default of `socket.request.max.bytes`: maximum size of a request of an authenticated client.
FRAME_BYTES_MAX: Final = 104_857_600
# Maximum size of a request before SASL authentication, which limits the memory that unknown peers can use.
UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 65_536
# Size of the shortest request header: api key, version, correlation id.
FRAME_BYTES_MIN: Final = 8

assert FRAME_BYTES_MIN < UNAUTHENTICATED_FRAME_BYTES_MAX < FRAME_BYTES_MAX

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


def check_frame_size(size_bytes: int, bytes_max: int) -> None:
    """Checks the announced size of a frame.

    The first bytes of TLS and HTTP are detected as well: read as a size, they exceed any limit. Raises FrameTooLarge,
    or MalformedRequest if the frame is too small for a header.
    """
    if size_bytes > bytes_max:
        raise FrameTooLarge(f"a frame of {size_bytes} bytes exceeds the limit of {bytes_max}")
    if size_bytes < FRAME_BYTES_MIN:
        raise MalformedRequest(f"a frame of {size_bytes} bytes cannot hold a request header")


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
# (coordinators/limits.py); somewhat longer requests are answered with an error.
JOIN: Final = RequestLimit(2 * _MIB, 1_000)
SYNC: Final = RequestLimit(2 * _MIB, 12_000)
LEAVE: Final = RequestLimit(_MIB, 3_000)
# Calls about one group, transaction or connection.
ONE: Final = RequestLimit(64 * _KIB, 1_000)
