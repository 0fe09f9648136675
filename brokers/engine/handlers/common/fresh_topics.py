"""Requests that name a topic this broker does not know yet, for example one that was just created on another broker.

Before such a request is answered with UNKNOWN_TOPIC_OR_PARTITION, the broker reads the change log once. These reads are
bounded for each instance and in total, so that requests for unknown topics cannot overload ZooKeeper. Produce, Fetch
and Metadata do without: their clients retry by themselves, and often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from brokers.engine.access.authorizer import UNKNOWN_TOPIC_OR_PARTITION
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.handlers.served_api import NamedTopic

# Maximum duration of the read; then the request is answered from the metadata as it is.
CHANGE_LOG_READ_S_MAX: Final = 1.0
# Number of topics of a request, and of partitions of a topic, that are checked; further ones are not.
NAMES_MAX: Final = 200
PARTITIONS_MAX: Final = 500

# Stands for a topic that is named without a partition.
NO_PARTITION: Final = -1
TOPIC_RESOURCE: Final = 2


# The following functions return the topics that a request names, one for each form of request.


def topics(request: Any) -> Iterator[NamedTopic]:
    return (NamedTopic(topic.name, NO_PARTITION) for topic in request.topics or ())


def topics_of_epochs(request: Any) -> Iterator[NamedTopic]:
    return (NamedTopic(topic.topic, NO_PARTITION) for topic in request.topics)


def topics_with_partitions(request: Any) -> Iterator[NamedTopic]:
    return (
        NamedTopic(topic.name, _highest(partition.partition_index for partition in topic.partitions))
        for topic in request.topics
    )


def topics_of_transaction(request: Any) -> Iterator[NamedTopic]:
    return (NamedTopic(topic.name, _highest(topic.partitions)) for topic in request.v3_and_below_topics)


def topics_to_delete(request: Any) -> Iterator[NamedTopic]:
    names = [topic.name for topic in request.topics or () if topic.name] or request.topic_names or ()
    return (NamedTopic(name, NO_PARTITION) for name in names)


def topic_resources(request: Any) -> Iterator[NamedTopic]:
    return (
        NamedTopic(resource.resource_name, NO_PARTITION)
        for resource in request.resources
        if resource.resource_type == TOPIC_RESOURCE
    )


def must_read_change_log(context: RequestContext, named: Iterable[NamedTopic]) -> bool:
    """True if the change log must be read before the request is answered; counts the read."""
    instance_id = context.view.instance_id
    if instance_id is None or not _names_unknown(context, named):
        return False
    return context.services.metadata.change_log_reads.take(instance_id)


async def catch_up(context: RequestContext) -> None:
    """Reads the change log, unless that takes too long, and gives the call a view of the new metadata."""
    services, view = context.services, context.view
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(CHANGE_LOG_READ_S_MAX):
            await services.metadata.catch_up()
    if services.metadata.current.image is not view.image:
        context.view = TenantMetadataView(
            services.metadata.version, services.metadata.current.image, view.principal, view.route_name
        )


def _highest(indexes: Iterable[int]) -> int:
    return max(islice(indexes, PARTITIONS_MAX), default=NO_PARTITION)


def _names_unknown(context: RequestContext, named: Iterable[NamedTopic]) -> bool:
    """True if a named topic or partition is unknown and the response would say so.

    Without a right to the topic the response, and its duration, do not depend on the topic's existence.
    """
    known = context.view.namespace.topics
    for name, index in islice(named, NAMES_MAX):
        topic = known.get(name.encode())
        if topic is None:
            if context.refusal(None, name) == UNKNOWN_TOPIC_OR_PARTITION:
                return True
        elif index >= len(topic.partitions) and not context.refusal(topic, name):
            return True
    return False
