"""Requests that name a topic this broker does not know yet, for example one that another broker has just created.

Before such a request is answered with UNKNOWN_TOPIC_OR_PARTITION the broker looks once into the change log. Looks are
bounded for each instance and for all of them: to ask for topics that do not exist is no way to keep ZooKeeper busy.
Produce, Fetch and Metadata do without: their clients ask again by themselves, and many ask all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from brokers.engine.access.authorizer import UNKNOWN_TOPIC_OR_PARTITION
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.handlers.context import Call, Handler, View
from brokers.engine.protocol.apis import ApiKey

# The request is answered as the image is by then.
LOOK_S_MAX: Final = 1.0
# Topics of a request, and partitions of a topic, that are looked at: among more of them some may be unknown.
NAMES_MAX: Final = 200
PARTITIONS_MAX: Final = 500

# A topic as the client calls it, and the highest partition of it that is meant, or none.
NO_PARTITION: Final = -1
Named = tuple[str, int]
TOPIC_RESOURCE: Final = 2

_K = ApiKey


def _topics(request: Any) -> Iterator[Named]:
    return ((topic.name, NO_PARTITION) for topic in request.topics or ())


def _epochs(request: Any) -> Iterator[Named]:
    return ((topic.topic, NO_PARTITION) for topic in request.topics)


def _highest(indexes: Iterable[int]) -> int:
    return max(islice(indexes, PARTITIONS_MAX), default=NO_PARTITION)


def _commits(request: Any) -> Iterator[Named]:
    return ((topic.name, _highest(line.partition_index for line in topic.partitions)) for topic in request.topics)


def _added(request: Any) -> Iterator[Named]:
    return ((topic.name, _highest(topic.partitions)) for topic in request.v3_and_below_topics)


def _deleted(request: Any) -> Iterator[Named]:
    names = [topic.name for topic in request.topics or () if topic.name] or request.topic_names or ()
    return ((name, NO_PARTITION) for name in names)


def _resources(request: Any) -> Iterator[Named]:
    return (
        (resource.resource_name, NO_PARTITION)
        for resource in request.resources
        if resource.resource_type == TOPIC_RESOURCE
    )


_NAMED: Final[Mapping[ApiKey, Callable[[Any], Iterable[Named]]]] = {
    _K.LIST_OFFSETS: _topics,
    _K.OFFSET_COMMIT: _commits,
    _K.TXN_OFFSET_COMMIT: _commits,
    _K.OFFSET_DELETE: _topics,
    _K.OFFSET_FOR_LEADER_EPOCH: _epochs,
    _K.ADD_PARTITIONS_TO_TXN: _added,
    _K.DESCRIBE_PRODUCERS: _topics,
    _K.DELETE_RECORDS: _commits,
    _K.DELETE_TOPICS: _deleted,
    _K.CREATE_PARTITIONS: _topics,
    _K.DESCRIBE_CONFIGS: _resources,
    _K.ALTER_CONFIGS: _resources,
    _K.INCREMENTAL_ALTER_CONFIGS: _resources,
}


def with_fresh_topics(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """Returns the handlers with a look into the change log before those that name topics."""
    return dict(handlers) | {int(key): _fresh(handlers[int(key)], named) for key, named in _NAMED.items()}


def _fresh(handler: Handler, named: Callable[[Any], Iterable[Named]]) -> Handler:
    def handle(call: Call, request: Any) -> Any:
        instance_id = call.view.instance_id
        if instance_id is None or not _names_unknown(call, named(request)):
            return handler(call, request)
        if not call.engine.topic_looks.take(instance_id):
            return handler(call, request)
        return _later(handler, call, request)

    return handle


def _names_unknown(call: Call, named: Iterable[Named]) -> bool:
    """True if a topic or partition is unknown that the client would be answered so about.

    Where it has no right it waits no longer for what is not there than for what is.
    """
    topics = call.view.namespace.topics
    for name, index in islice(named, NAMES_MAX):
        topic = topics.get(name.encode())
        if topic is None:
            if call.refusal(None, name) == UNKNOWN_TOPIC_OR_PARTITION:
                return True
        elif index >= len(topic.partitions) and not call.refusal(topic, name):
            return True
    return False


async def _later(handler: Handler, call: Call, request: Any) -> Any:
    engine, view = call.engine, call.view
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(LOOK_S_MAX):
            await engine.catch_up()
    if engine.current.image is not view.image:
        call.view = View(engine.metadata_version, engine.current.image, view.principal, view.route_name)
    answer: Any | Awaitable[Any] = handler(call, request)
    return await answer if hasattr(answer, "__await__") else answer
