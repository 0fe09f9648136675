"""CreatePartitions: adds partitions to a topic; existing ones stay where they are (REP-35)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.topic_admin import CreatedTopic
from brokers.engine.cluster.topic_plans import TopicGrowth
from brokers.engine.handlers.common.changing import changing
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.topics.topics import TIMED_OUT, Patience, Wrong, charge_client, refusal
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from brokers.engine.scheduling.time_slice import TimeSlice

# Growing a topic, or rejecting that, takes as long as this number of lines of other requests.


async def create_partitions(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    names = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    grown: dict[str, CreatedTopic] = {}
    time_slice = TimeSlice()
    patience = None if request.validate_only else Patience(call, request.timeout_ms)
    for topic in request.topics:
        await time_slice.pause()
        try:
            if names[topic.name] > 1:
                raise Wrong(ErrorCode.INVALID_REQUEST, "Duplicate topic in the request.")
            made = await _grow(call, topic, list(grown.values()), patience)
        except Wrong as wrong:
            results[topic.name] = CreatePartitionsTopicResult(
                name=topic.name, error_code=wrong.code, error_message=str(wrong)
            )
        else:
            results[topic.name] = CreatePartitionsTopicResult(name=topic.name, error_code=0)
            grown[topic.name] = made
    if patience is not None:
        await _complete(call, patience, grown, results)
    return CreatePartitionsResponse(results=list(results.values()))


async def _grow(
    call: Call, wanted: CreatePartitionsTopic, beside: Sequence[CreatedTopic], patience: Patience | None
) -> CreatedTopic:
    """Grows a topic; only validates the request without `patience`."""
    topic = call.view.namespace.topics.get(wanted.name.encode())
    error = call.refusal(topic, wanted.name)
    if error:
        raise Wrong(error, "This server does not host this topic-partition." if topic is None else "Not allowed.")
    settings = call.services.coordination.settings
    if topic is not None and topic.name in (settings.groups_topic.name, settings.transactions_topic.name):
        # An id's partition follows from the number of partitions: after a change committed state would not be found.
        raise Wrong(ErrorCode.INVALID_REQUEST, "The number of partitions of coordinators' topics never changes.")
    assignment = None if wanted.assignments is None else [tuple(replicas.broker_ids) for replicas in wanted.assignments]

    async def grow(*, validate_only: bool) -> CreatedTopic:
        return await call.services.metadata.store.create_partitions(
            call.services.metadata.current.image,
            TopicGrowth(call.view.instance_id, wanted.name, total=wanted.count, assignment=assignment),
            validate_only=validate_only,
            beside=beside,
        )

    try:
        plan = await grow(validate_only=True)
        if patience is None:
            return plan
        added = len(plan.assignment) - (0 if topic is None else len(topic.partitions))
        charge_client(call, added)
        async with changing(call, max(added, 1), partitions=len(plan.assignment), wait_s=patience.left_s):
            return await grow(validate_only=False)
    except ClusterError as failure:
        raise refusal(call, failure) from failure


async def _complete(
    call: Call, patience: Patience, grown: dict[str, CreatedTopic], results: dict[str, CreatePartitionsTopicResult]
) -> None:
    if not grown:
        return

    def led(image: ClusterImage, made: CreatedTopic) -> bool:
        topic = image.topics.get(made.internal_name)
        return topic is not None and len(topic.partitions) >= len(made.assignment) and topic.has_leaders

    current = call.services.metadata.current
    timeout_s = 0.0 if patience.is_over_at_once else patience.left_s
    await current.wait_until(lambda image: all(led(image, made) for made in grown.values()), timeout_s)
    for name, made in grown.items():
        if patience.is_over_at_once or not led(current.image, made):
            results[name].error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            results[name].error_message = TIMED_OUT
