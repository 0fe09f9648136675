"""Requests that name a topic this broker does not know yet, for example one that another broker has just created.

Before such a request is answered with UNKNOWN_TOPIC_OR_PARTITION the broker looks once into the change log. Looks are
bounded for each instance and for all of them: to ask for topics that do not exist is no way to keep ZooKeeper busy.
Produce, Fetch and Metadata do without: their clients ask again by themselves, and many ask all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from brokers.engine.access.authorizer import UNKNOWN_TOPIC_OR_PARTITION
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.handlers.context import Call, View
from brokers.engine.handlers.served_api import NamedTopic

# The request is answered as the image is by then.
LOOK_S_MAX: Final = 1.0
# Topics of a request, and partitions of a topic, that are looked at: among more of them some may be unknown.
NAMES_MAX: Final = 200
PARTITIONS_MAX: Final = 500

# The request names a topic and no partition of it.
NO_PARTITION: Final = -1
TOPIC_RESOURCE: Final = 2


def topics(request: Any) -> Iterator[NamedTopic]:
    return (NamedTopic(topic.name, NO_PARTITION) for topic in request.topics or ())


def topics_of_epochs(request: Any) -> Iterator[NamedTopic]:
    return (NamedTopic(topic.topic, NO_PARTITION) for topic in request.topics)


def topics_with_partitions(request: Any) -> Iterator[NamedTopic]:
    return (
        NamedTopic(topic.name, _highest(line.partition_index for line in topic.partitions)) for topic in request.topics
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


def must_look(call: Call, named: Iterable[NamedTopic]) -> bool:
    """Returns True if the change log must be read before the request is answered, and counts this as one look."""
    instance_id = call.view.instance_id
    if instance_id is None or not _names_unknown(call, named):
        return False
    return call.services.metadata.topic_looks.take(instance_id)


async def catch_up(call: Call) -> None:
    """Reads the change log, and gives the call a view of the image as it is then."""
    services, view = call.services, call.view
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(LOOK_S_MAX):
            await services.metadata.catch_up()
    if services.metadata.current.image is not view.image:
        call.view = View(services.metadata.version, services.metadata.current.image, view.principal, view.route_name)


def _highest(indexes: Iterable[int]) -> int:
    return max(islice(indexes, PARTITIONS_MAX), default=NO_PARTITION)


def _names_unknown(call: Call, named: Iterable[NamedTopic]) -> bool:
    """Returns True if a topic or partition is unknown that the client would be answered so about.

    Where it has no right it waits no longer for what is not there than for what is.
    """
    known = call.view.namespace.topics
    for name, index in islice(named, NAMES_MAX):
        topic = known.get(name.encode())
        if topic is None:
            if call.refusal(None, name) == UNKNOWN_TOPIC_OR_PARTITION:
                return True
        elif index >= len(topic.partitions) and not call.refusal(topic, name):
            return True
    return False
