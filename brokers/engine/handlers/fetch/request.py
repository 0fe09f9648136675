"""A client's Fetch as it is decoded, and the decision whether it has to wait (WIRE-27)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.context import View
from brokers.engine.handlers.fetch.read_result import FetchReadResult
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.fast_codec import FetchFrame
from brokers.engine.throttling.charging import fetch_cap_bytes

TOPIC_IDS_FROM: Final = 13
# A request that names no more partitions than these is kept without a look at how many there are.
DELAYED_UNCOUNTED_MAX: Final = 1_000


class FetchRequest:
    """A Fetch from version 4 on that a client sent."""

    __slots__ = ("client_id", "correlation_id", "frame", "session", "version")

    def __init__(
        self, session: Session, client_id: str | None, version: int, correlation_id: int, frame: FetchFrame
    ) -> None:
        self.session = session
        self.client_id = client_id
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame

    @property
    def names_ids(self) -> bool:
        """True if the topics of the request are ids, not names."""
        return self.version >= TOPIC_IDS_FROM

    def client(self) -> Client:
        """Returns the client in the cluster as it is now: the request may have waited."""
        return self.session.client(self.client_id)

    def limit_bytes(self, client: Client) -> int:
        """Returns how many bytes of records one answer has at most."""
        most = min(self.frame.max_bytes, self.session.storage.fetch_bytes_max)
        return fetch_cap_bytes(client.consume_limiters, most)

    def missing_bytes(self, client: Client, result: FetchReadResult, limit_bytes: int) -> int:
        """Returns how many more bytes must be readable before the request is answered, 0 if it does not wait."""
        frame = self.frame
        wanted_bytes = min(frame.min_bytes, limit_bytes)
        missing_bytes = wanted_bytes - result.readable_bytes
        if missing_bytes <= 0 or frame.max_wait_ms <= 0 or result.must_answer or not result.watched:
            return 0
        if result.readable_bytes:
            asked = _read_without_error(client, frame, result)
            missing_bytes = 0 if asked is None else bytes_still_missing(asked, frame.isolation, wanted_bytes)
        if missing_bytes and may_be_delayed(sum([len(wanted) for _, wanted in frame.topics]), client.view):
            return missing_bytes
        return 0


def _read_without_error(
    client: Client, frame: FetchFrame, result: FetchReadResult
) -> list[tuple[Partition, int, int]] | None:
    """Returns the partitions that were read without an error, each with the offset and the most bytes that are wanted
    of it; None if a topic is not what it was when it was read.
    """
    asked = []
    for (key, wanted), (_, partition_results) in zip(frame.topics, result.answers, strict=True):
        route = client.consume_routes.get(key)
        if route is None:
            return None
        for (index, _, offset, _, _, bytes_max), partition_result in zip(wanted, partition_results, strict=True):
            partition = route.partitions.get(index)
            if not partition_result[1] and partition is not None:
                asked.append((partition, offset, bytes_max))
    return asked


def may_be_delayed(partition_count: int, view: View) -> bool:
    """Returns True if a fetch of this number of partitions may wait.

    One that names more than there are names some again and again, or none of them. Thousands of such requests, kept
    until their wait is over, would be all the memory there is.
    """
    if partition_count <= DELAYED_UNCOUNTED_MAX or view.instance_id is None:
        return True
    return partition_count <= sum(len(topic.partitions) for topic in view.namespace.topics.values())


def bytes_still_missing(asked: Iterable[tuple[Partition, int, int]], isolation: int, wanted_bytes: int) -> int:
    """Returns how many more bytes must be readable until a fetch of `asked` need not wait, 0 if it need not.

    `asked` has the partitions whose answer has no error, each with the offset and the most bytes that are wanted of it.
    What is there counts, not what one answer holds, which ends with a segment and between two batches. A reader of an
    older segment than the one in which its records end does not wait at all.
    """
    for partition, offset, bytes_max in asked:
        limit = partition.limit(isolation)
        if offset >= limit:
            continue
        segments = partition.log.segments
        following = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        if following < len(segments) and segments[following].base_offset < limit:
            return 0
        wanted_bytes -= min(partition.log.bytes_between(offset, limit), bytes_max)
        if wanted_bytes <= 0:
            return 0
    return wanted_bytes
