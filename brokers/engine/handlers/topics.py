"""CreateTopics and DeleteTopics, on any broker: written by compare-and-set, answered when every broker can see it
(CTL-17…20; never NOT_CONTROLLER, which is a meant difference from Kafka).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from brokers.engine.access.authorizer import Operation, decide
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.topic_admin import CreatedTopic
from brokers.engine.handlers.context import Call
from brokers.engine.partitions import topic_config
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

TOPICS_PER_CALL_MAX = 1_000
# However long a client is willing to wait.
WAIT_S_MAX = 60.0
TIMED_OUT = "The operation goes on, but was not finished within the time given."


class Wrong(Exception):
    """What one topic of the request is refused with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)


async def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    names = Counter(topic.name for topic in request.topics)
    if len(names) > TOPICS_PER_CALL_MAX:
        refused = Wrong(ErrorCode.INVALID_REQUEST, f"At most {TOPICS_PER_CALL_MAX} topics in one request.")
        return CreateTopicsResponse(topics=[_refused(name, refused) for name in names])
    results: dict[str, CreatableTopicResult] = {}
    made: dict[str, CreatedTopic] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if names[topic.name] > 1:
                raise Wrong(ErrorCode.INVALID_REQUEST, "Duplicate topic in the request.")
            created = await _create(call, topic, request.validate_only)
        except Wrong as wrong:
            results[topic.name] = _refused(topic.name, wrong)
        else:
            results[topic.name] = _created(call, topic.name, created)
            if not request.validate_only:
                made[topic.name] = created
    await _settle(call, request.timeout_ms, made, results)
    return CreateTopicsResponse(topics=list(results.values()))


async def _create(call: Call, topic: CreatableTopic, validate_only: bool) -> CreatedTopic:
    assignment = None
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise Wrong(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the "
                "same time.",
            )
        assignment = {line.partition_index: tuple(line.broker_ids) for line in topic.assignments}
        if len(assignment) != len(topic.assignments):
            raise Wrong(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned twice.")
    given = {config.name: config.value for config in topic.configs}
    if len(given) != len(topic.configs):
        raise Wrong(ErrorCode.INVALID_CONFIG, "A configuration is given twice.")
    try:
        config = topic_config.check_config(given)
        return await call.engine.store.create_topic(
            call.engine.current.image,
            instance_id=call.view.instance_id,
            name=topic.name,
            partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignment=assignment,
            config=config,
            validate_only=validate_only,
        )
    except topic_config.InvalidTopicConfig as error:
        raise Wrong(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ClusterError as error:
        raise Wrong(error.wire_code, str(error)) from error


async def _settle(
    call: Call, timeout_ms: int, made: dict[str, CreatedTopic], results: dict[str, CreatableTopicResult]
) -> None:
    """Waits until every partition of what was made has a leader (CTL-17), which is when a produce can succeed."""
    if not made:
        return

    def led(image: ClusterImage, created: CreatedTopic) -> bool:
        topic = image.topics.get(created.internal_name)
        return topic is not None and topic.topic_id == created.topic_id and topic.has_leaders

    current = call.engine.current
    timeout_s = min(max(timeout_ms, 0) / 1000, WAIT_S_MAX)
    await current.wait_until(lambda image: all(led(image, created) for created in made.values()), timeout_s)
    for name, created in made.items():
        if timeout_ms <= 0 or not led(current.image, created):
            results[name].error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            results[name].error_message = TIMED_OUT


def _refused(name: str, wrong: Wrong) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=UUID_ZERO, error_code=wrong.code, error_message=str(wrong), configs=[]
    )


def _created(call: Call, name: str, created: CreatedTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=created.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(created.assignment),
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=line.setting.name,
                value=line.value,
                read_only=line.setting.read_only,
                config_source=int(line.source),
                is_sensitive=False,
            )
            for line in topic_config.describe(created.config, call.engine.topic_defaults)
        ],
    )


async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted = request.topics or [DeleteTopicState(name=name, topic_id=UUID_ZERO) for name in request.topic_names]
    wanted = wanted[:TOPICS_PER_CALL_MAX]
    results = []
    deleted: list[tuple[TopicImage, DeletableTopicResult]] = []
    for state in _without_repeats(wanted):
        try:
            topic = await _delete(call, state)
        except Wrong as wrong:
            message = str(wrong) if wrong.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
            result = DeletableTopicResult(
                name=state.name, topic_id=state.topic_id, error_code=wrong.code, error_message=message
            )
        else:
            shown = call.view.namespace.shown(topic)
            result = DeletableTopicResult(name=shown, topic_id=topic.topic_id, error_code=0)
            deleted.append((topic, result))
        results.append(result)
    await _await_removal(call, request.timeout_ms, deleted)
    return DeleteTopicsResponse(responses=results)


def _without_repeats(wanted: Iterable[DeleteTopicState]) -> list[DeleteTopicState]:
    return list({(state.name, state.topic_id): state for state in wanted}.values())


async def _delete(call: Call, state: DeleteTopicState) -> TopicImage:
    namespace = call.view.namespace
    if state.name is None:
        if state.topic_id == UUID_ZERO:
            raise Wrong(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Neither a name nor an id.")
        topic = namespace.topic_by_id(state.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    elif state.topic_id != UUID_ZERO:
        raise Wrong(ErrorCode.INVALID_REQUEST, "Both a name and an id.")
    else:
        topic = namespace.topics.get(state.name.encode())
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = decide(call.view.state, topic, Operation.DESCRIBE, call.address)
    if topic is None or error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise Wrong(missing, "This server does not host this topic-partition.")
    if error:
        raise Wrong(error, "Topic authorization failed.")
    try:
        return await call.engine.store.delete_topic(
            call.engine.current.image, instance_id=call.view.instance_id, name=namespace.shown(topic)
        )
    except ClusterError as failure:
        raise Wrong(failure.wire_code, str(failure)) from failure


async def _await_removal(call: Call, timeout_ms: int, deleted: list[tuple[TopicImage, DeletableTopicResult]]) -> None:
    """Until no picture shows them any more, so that the names can be used again."""
    if not deleted:
        return

    def gone(image: ClusterImage, topic: TopicImage) -> bool:
        present = image.topics.get(topic.name)
        return present is None or present.topic_id != topic.topic_id

    current = call.engine.current
    timeout_s = min(max(timeout_ms, 0) / 1000, WAIT_S_MAX)
    await current.wait_until(lambda image: all(gone(image, topic) for topic, _ in deleted), timeout_s)
    for topic, result in deleted:
        if timeout_ms <= 0 or not gone(current.image, topic):
            result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            result.error_message = TIMED_OUT
