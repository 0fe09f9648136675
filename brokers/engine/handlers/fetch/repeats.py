"""Removes repeated partitions from a Fetch. As in Apache Kafka the last entry counts, at the position of the first, so
that a partition is read and watched once, however often a request names it.
"""

from __future__ import annotations

from brokers.engine.protocol.fast_codec import FetchFrame
from brokers.engine.protocol.fast_codec_fetch import FetchPartitionRequest, FetchTopicRequest
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.scheduling.time_slice import TimeSlice, yield_to_others

# Last entry of each partition, by topic name or id and partition index.
Latest = dict[tuple[bytes, int], FetchPartitionRequest]


def without_repeats(frame: FetchFrame) -> FetchFrame:
    """Returns the frame with each partition once. Adjacent entries of one topic are merged, as in Kafka's response."""
    if not has_repeats(frame.topics):
        return frame
    return frame._replace(topics=_group_by_topic(_latest_entries(frame.topics)))


async def without_repeats_in_turns(frame: FetchFrame) -> FetchFrame:
    """Does the work of `without_repeats` for a frame with many partitions, and serves other requests in between."""
    if not has_repeats(frame.topics):
        return frame
    await yield_to_others()
    latest = _latest_entries(frame.topics)
    await yield_to_others()
    return frame._replace(topics=_group_by_topic(latest))


def has_repeats(topics: list[FetchTopicRequest]) -> bool:
    if len(topics) > 1 and len({key for key, _ in topics}) < len(topics):
        return True
    return any(
        len(partitions) > 1 and len({partition[0] for partition in partitions}) < len(partitions)
        for _, partitions in topics
    )


def _latest_entries(topics: list[FetchTopicRequest]) -> Latest:
    latest: Latest = {}
    for key, partitions in topics:
        for partition in partitions:
            latest[key, partition[0]] = partition
    return latest


def _group_by_topic(latest: Latest) -> list[FetchTopicRequest]:
    grouped: list[FetchTopicRequest] = []
    for (key, _), entry in latest.items():
        if grouped and grouped[-1][0] == key:
            grouped[-1][1].append(entry)
        else:
            grouped.append((key, [entry]))
    return grouped


async def without_repeats_in_legacy_request(request: FetchRequest) -> None:
    """Removes repeated partitions from a request of an old version, and serves other requests in between."""
    latest: dict[tuple[str, int], FetchPartition] = {}
    count = 0
    time_slice = TimeSlice()
    for topic in request.topics:
        count += len(topic.partitions)
        await time_slice.pause()
        for wanted in topic.partitions:
            await time_slice.pause()
            latest[topic.topic, wanted.partition] = wanted
    if len(latest) == count and len({topic.topic for topic in request.topics}) == len(request.topics):
        return
    topics: list[FetchTopic] = []
    for (name, _), wanted in latest.items():
        await time_slice.pause()
        if topics and topics[-1].topic == name:
            topics[-1].partitions.append(wanted)
        else:
            topics.append(FetchTopic(topic=name, partitions=[wanted]))
    request.topics = topics
