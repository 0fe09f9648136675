"""DescribeLogDirs: the size of each partition on the disks of this broker.

A tenant sees its own partitions, and directories by number instead of path: paths and volumes are the operator's, and
a tenant's limit is its instance's capacity, not a disk. So `total_bytes` and `usable_bytes` are -1, the protocol's
"unknown". The cluster's own identity sees everything.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Final

from brokers.contract.acls import ResourceType
from brokers.engine.handlers.context import RequestContext
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from brokers.engine.scheduling.time_slice import TimeSlice

UNKNOWN_BYTES: Final = -1
VOLUMES_FROM: Final = 4
# Stands for a directory's path, with its number in the broker's configuration.
TENANT_DIRECTORY: Final = "/log-dirs/{number}"

# Partitions in one directory, by the name of their topic.
_ByTopic = dict[str, list[Partition]]


async def describe_log_dirs(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if denied := context.denial(ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=denied, results=[])
    table = context.services.storage.table
    is_operator = context.view.instance_id is None
    roots = table.settings.roots
    partitions_by_root: dict[Path, _ByTopic] = {root: {} for root in roots}
    time_slice = TimeSlice()
    requested_indexes_by_topic = await _requested_partitions(context, request, time_slice)
    for name, partition in _visible(context, requested_indexes_by_topic):
        partitions_by_root[partition.log.root].setdefault(name, []).append(partition)
        await time_slice.pause()
    volumes: dict[Path, tuple[int, int]] = {}
    if is_operator and context.version >= VOLUMES_FROM:
        # A disk that hangs must not block the event loop.
        volumes = await asyncio.to_thread(_volumes, [root for root in roots if root not in table.offline_directories])
    results = []
    for number, root in enumerate(roots):
        shown_path = str(root.absolute()) if is_operator else TENANT_DIRECTORY.format(number=number)
        if root in table.offline_directories:
            results.append(DescribeLogDirsResult(error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=shown_path))
            continue
        topics = []
        for name, partitions in partitions_by_root[root].items():
            topics.append(_describe_topic(name, partitions))
            await time_slice.pause()
        total_bytes, usable_bytes = volumes.get(root, (UNKNOWN_BYTES, UNKNOWN_BYTES))
        results.append(
            DescribeLogDirsResult(
                error_code=0,
                log_dir=shown_path,
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        )
    return DescribeLogDirsResponse(error_code=0, results=results)


def topics_of(response: DescribeLogDirsResponse) -> Iterable[DescribeLogDirsTopic]:
    return (topic for result in response.results for topic in result.topics)


async def _requested_partitions(
    context: RequestContext, request: DescribeLogDirsRequest, time_slice: TimeSlice
) -> dict[str, set[int]] | None:
    """Returns the requested partitions by the names of existing topics; None for all."""
    if request.topics is None:
        return None
    requested_indexes_by_topic: dict[str, set[int]] = {}
    topics = context.view.namespace.topics
    for topic in request.topics:
        if topic.topic.encode() in topics:
            requested_indexes_by_topic.setdefault(topic.topic, set()).update(topic.partitions)
        await time_slice.pause()
    return requested_indexes_by_topic


def _visible(
    context: RequestContext, requested_indexes_by_topic: Mapping[str, Set[int]] | None
) -> Iterable[tuple[str, Partition]]:
    """Yields the requested partitions on this broker that the caller may see, with the names of their topics."""
    namespace, table = context.view.namespace, context.services.storage.table
    for topic in namespace.topics.values():
        name = namespace.shown(topic)
        if context.refusal(topic, name):
            continue
        indexes = None if requested_indexes_by_topic is None else requested_indexes_by_topic.get(name, ())
        for index in range(len(topic.partitions)):
            if indexes is not None and index not in indexes:
                continue
            partition = table.get(topic.name, index)
            if partition is not None:
                yield name, partition


def _describe_topic(name: str, partitions: list[Partition]) -> DescribeLogDirsTopic:
    """Describes the partitions of a topic. The lag is that of the log end behind the high watermark, usually 0."""
    partition_results = [
        DescribeLogDirsPartition(
            partition_index=partition.index,
            partition_size=partition.size_bytes,
            offset_lag=max(partition.high_watermark - partition.log_end_offset, 0),
            is_future_key=False,
        )
        for partition in partitions
    ]
    return DescribeLogDirsTopic(name=name, partitions=partition_results)


def _volumes(roots: list[Path]) -> dict[Path, tuple[int, int]]:
    """Returns the total and the usable bytes of the volume of each readable directory."""
    result = {}
    for root in roots:
        try:
            volume = os.statvfs(root)
        except OSError:
            # The next access by a log reports the lost disk; here its size is unknown.
            continue
        result[root] = (volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)
    return result
