"""CreateTopics, DeleteTopics and CreatePartitions, which any broker writes by compare-and-set. It responds when its own
metadata has the change, and new partitions have leaders (CTL-17…20, REP-35). Deliberately different from Kafka, it
never returns NOT_CONTROLLER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from brokers.engine.cluster.errors import ClusterError, TooManyChanges
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.topic_admin import CreatedTopic
from brokers.engine.cluster.topic_plans import TopicGrowth, TopicSpec
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.served_api import DENIAL_TEXTS
from brokers.engine.handlers.zookeeper_change import (
    CHANGE_WAIT_S_MAX,
    EXCEEDED,
    STRICT_FROM,
    try_charge_mutation,
    zookeeper_change,
)
from brokers.engine.partitions import topic_config
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from brokers.engine.scheduling.time_slice import TimeSlice, yield_to_others
from instances.naming import collision_key

TOPICS_PER_CALL_MAX = 1_000
TOO_MANY = f"At most {TOPICS_PER_CALL_MAX} topics in one request."
# Far more than there are configuration keys; checking this number takes 1 ms.
CONFIGS_PER_RESOURCE_MAX: Final = 500
TOO_MANY_CONFIGS: Final = f"At most {CONFIGS_PER_RESOURCE_MAX} configurations of one resource."
NOT_AUTHORISED = "Authorization failed."
# First version with TOPIC_DELETION_DISABLED.
DELETION_DISABLED_FROM: Final = 3
NO_DELETION = "Topic deletion is disabled."
NO_RIGHT = "Topic authorization failed."
# Maximum wait, whatever timeout the client requests.
WAIT_S_MAX = 60.0
TIMED_OUT = "The operation goes on, but was not finished within the time given."


class ResourceError(Exception):
    """Error of one topic, or of another resource, in a request."""

    def __init__(self, code: int, message: str, visible_name: str | None = None) -> None:
        """Creates the error. `visible_name` is the name of a topic requested by id, if the client may know it."""
        super().__init__(message)
        self.code = int(code)
        self.visible_name = visible_name


def resource_error(context: RequestContext, error: ClusterError) -> ResourceError:
    """Returns the error of a change that the store rejected."""
    code = error.wire_code
    if isinstance(error, TooManyChanges) and context.version < STRICT_FROM[context.api_key]:
        code = int(ErrorCode.REQUEST_TIMED_OUT)
    return ResourceError(code, str(error))


def check_right(context: RequestContext, kind: ResourceType = ResourceType.CLUSTER, name: str = CLUSTER_NAME) -> None:
    """Raises ResourceError if the principal may not make this call for a resource."""
    if denied := context.denial(kind, name):
        raise ResourceError(denied, DENIAL_TEXTS[denied])


def charge_client(context: RequestContext, partitions: int) -> None:
    """Charges the client for a change. Raises ResourceError if it first has to pay for earlier changes (QUO-41)."""
    if not try_charge_mutation(context, partitions):
        raise ResourceError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)


class RequestDeadline:
    """Deadline shared by the changes of one request, for their turns and until this broker's metadata has them."""

    def __init__(self, context: RequestContext, timeout_ms: int) -> None:
        self._clock = context.services.clock
        self._current = context.services.metadata.current
        self.is_immediate = timeout_ms <= 0
        wait_ms = round(CHANGE_WAIT_S_MAX * 1000) if self.is_immediate else min(timeout_ms, round(WAIT_S_MAX * 1000))
        self._until_ms = self._clock.monotonic_ms() + wait_ms

    @property
    def remaining_s(self) -> float:
        return max(0, self._until_ms - self._clock.monotonic_ms()) / 1000

    async def wait_until_applied(
        self, has: Callable[[ClusterImage, Any], bool], changes: Sequence[tuple[Any, Any]]
    ) -> None:
        """Waits until the metadata `has` all changes; results of those that are late become REQUEST_TIMED_OUT."""
        if not changes:
            return
        timeout_s = 0.0 if self.is_immediate else self.remaining_s
        await self._current.wait_until(lambda image: all(has(image, change) for change, _ in changes), timeout_s)
        for change, result in changes:
            if self.is_immediate or not has(self._current.image, change):
                result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
                result.error_message = TIMED_OUT


async def create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    if len(request.topics) > TOPICS_PER_CALL_MAX:
        return CreateTopicsResponse(topics=await _all_refused(request.topics))
    names = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    created_topics: list[tuple[CreatedTopic, CreatableTopicResult]] = []
    accepted_names: dict[str, str] = {}
    deadline = None if request.validate_only else RequestDeadline(context, request.timeout_ms)
    for topic in request.topics:
        # Topics are only validated here, and each is compared with all topics of the instance.
        await yield_to_others()
        try:
            if names[topic.name] > 1:
                raise ResourceError(ErrorCode.INVALID_REQUEST, "Duplicate topic in the request.")
            _check_right_to_create(context, topic.name)
            _check_collision(context, topic.name, accepted_names)
            created = await _create(context, topic, [plan for plan, _ in created_topics], deadline)
        except ResourceError as error:
            results.append(_error_result(topic.name, error))
        else:
            accepted_names[collision_key(topic.name)] = topic.name
            results.append(_created_result(context, topic.name, created, request.validate_only))
            created_topics.append((created, results[-1]))
    if deadline is not None:
        await deadline.wait_until_applied(_has_leaders, created_topics)
    return CreateTopicsResponse(topics=results)


async def _all_refused(topics: Sequence[CreatableTopic]) -> list[CreatableTopicResult]:
    refused, time_slice = ResourceError(ErrorCode.INVALID_REQUEST, TOO_MANY), TimeSlice()
    results = []
    for topic in topics:
        results.append(_error_result(topic.name, refused))
        await time_slice.pause()
    return results


def _check_right_to_create(context: RequestContext, name: str) -> None:
    if context.denial(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.CREATE):
        denied = context.denial(ResourceType.TOPIC, name)
        if denied:
            raise ResourceError(denied, NOT_AUTHORISED)


def _check_collision(context: RequestContext, name: str, accepted_names: Mapping[str, str]) -> None:
    """Checks collisions among the topics of one request (CTL-18), except for the cluster's own topics."""
    other = accepted_names.get(collision_key(name))
    if other is not None and context.view.instance_id is not None:
        raise ResourceError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {other}")


async def _create(
    context: RequestContext,
    topic: CreatableTopic,
    pending_creations: Sequence[CreatedTopic],
    deadline: RequestDeadline | None,
) -> CreatedTopic:
    """Creates a topic, or only validates it without `deadline`. `pending_creations` are those of the same request."""
    assignment = _assignment_of(topic)

    async def create(config: Mapping[str, str], *, validate_only: bool) -> CreatedTopic:
        return await context.services.metadata.store.create_topic(
            context.services.metadata.current.image,
            TopicSpec(
                context.view.instance_id,
                topic.name,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignment=assignment,
                config=config,
            ),
            validate_only=validate_only,
            pending_creations=pending_creations,
        )

    if len(topic.configs) > CONFIGS_PER_RESOURCE_MAX:
        raise ResourceError(ErrorCode.INVALID_REQUEST, TOO_MANY_CONFIGS)
    try:
        try:
            # The last value of a repeated key counts.
            config = topic_config.check_config(
                {config.name: config.value for config in topic.configs},
                {},
                context.services.metadata.topic_defaults,
                operator=context.view.instance_id is None,
            )
            topic_config.check_combination(config, context.services.metadata.topic_defaults)
            topic_config.check_message_bytes(config, message_bytes_max(context), {})
        except topic_config.InvalidTopicConfig as error:
            # Kafka checks the configuration last: any other error takes precedence.
            await create({}, validate_only=True)
            raise ResourceError(ErrorCode.INVALID_CONFIG, str(error)) from error
        plan = await create(config, validate_only=True)
        if deadline is None:
            return plan
        count = len(plan.assignment)
        charge_client(context, count)
        async with zookeeper_change(context, count, partitions=count, wait_s=deadline.remaining_s):
            # A user who lost the right while waiting changes nothing.
            _check_right_to_create(context, topic.name)
            return await create(config, validate_only=False)
    except ClusterError as error:
        raise resource_error(context, error) from error


def _assignment_of(topic: CreatableTopic) -> dict[int, tuple[int, ...]] | None:
    """Returns the requested brokers of each partition, None if the controller chooses. Raises ResourceError."""
    if not topic.assignments:
        return None
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise ResourceError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same "
            "time.",
        )
    assignment = {partition.partition_index: tuple(partition.broker_ids) for partition in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise ResourceError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned twice.")
    return assignment


def message_bytes_max(context: RequestContext) -> int | None:
    """Returns the upper bound of `max.message.bytes` in the instance's topics; None for the cluster itself."""
    return None if context.view.instance is None else context.view.instance.document.message_bytes_max


def _has_leaders(image: ClusterImage, created: CreatedTopic) -> bool:
    """True if every partition of a created topic has a leader (CTL-17), and a produce can succeed."""
    topic = image.topics.get(created.internal_name)
    return topic is not None and topic.topic_id == created.topic_id and topic.has_leaders


def _error_result(name: str, error: ResourceError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=UUID_ZERO, error_code=error.code, error_message=str(error), configs=[]
    )


def _created_result(
    context: RequestContext, name: str, created: CreatedTopic, validate_only: bool
) -> CreatableTopicResult:
    """Returns the result of a created topic: without id after a mere validation, without settings if denied."""
    topic_id = UUID_ZERO if validate_only else created.topic_id
    denied = context.denial(ResourceType.TOPIC, name, AclOperation.DESCRIBE_CONFIGS)
    if denied:
        return CreatableTopicResult(
            name=name, topic_id=topic_id, error_code=0, topic_config_error_code=denied, configs=None
        )
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(created.assignment),
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=described.setting.name,
                value=described.value,
                read_only=described.setting.read_only,
                config_source=int(described.source),
                is_sensitive=False,
            )
            for described in topic_config.describe(created.config, context.services.metadata.topic_defaults)
        ],
    )


async def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    requested_topics = request.topics or [
        DeleteTopicState(name=name, topic_id=UUID_ZERO) for name in request.topic_names
    ]
    results = []
    deleted: list[tuple[TopicImage, DeletableTopicResult]] = []
    marked: set[str] = set()
    deadline = RequestDeadline(context, request.timeout_ms)
    time_slice = TimeSlice()
    for number, state in enumerate(requested_topics):
        await time_slice.pause()
        try:
            if number >= TOPICS_PER_CALL_MAX:
                raise ResourceError(ErrorCode.INVALID_REQUEST, TOO_MANY)
            if not context.services.metadata.deletes_topics:
                is_known = context.version >= DELETION_DISABLED_FROM
                raise ResourceError(
                    ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST, NO_DELETION
                )
            topic = _find(context, state)
            if topic.name not in marked:
                await _mark_for_deletion(context, topic, deadline)
                marked.add(topic.name)
        except ResourceError as error:
            message = str(error) if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
            result = DeletableTopicResult(
                name=error.visible_name or state.name,
                topic_id=state.topic_id,
                error_code=error.code,
                error_message=message,
            )
        else:
            visible_name = context.view.namespace.shown(topic)
            result = DeletableTopicResult(name=visible_name, topic_id=topic.topic_id, error_code=0)
            deleted.append((topic, result))
        results.append(result)
    await deadline.wait_until_applied(_is_deleted, deleted)
    return DeleteTopicsResponse(responses=results)


def _find(context: RequestContext, state: DeleteTopicState) -> TopicImage:
    namespace = context.view.namespace
    if state.name is None:
        if state.topic_id == UUID_ZERO:
            raise ResourceError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Neither a name nor an id.")
        topic = namespace.topic_by_id(state.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    elif state.topic_id != UUID_ZERO:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Both a name and an id.")
    else:
        topic = namespace.topics.get(state.name.encode())
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if state.name is None and topic is None:
        raise ResourceError(missing, "This server does not host this topic-partition.")
    name = namespace.shown(topic) if topic is not None else state.name or ""
    error = context.refusal(topic, name)
    if state.name is None and context.denial(ResourceType.TOPIC, name, AclOperation.DESCRIBE):
        raise ResourceError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_RIGHT)
    if error and error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ResourceError(error, NO_RIGHT, visible_name=name if context.denial(ResourceType.TOPIC, name) else None)
    if topic is None or error:
        raise ResourceError(missing, "This server does not host this topic-partition.")
    return topic


def _check_still_allowed(context: RequestContext, topic: TopicImage) -> None:
    """Raises ResourceError for a user who lost the right while waiting for the turn."""
    error = context.refusal(topic, context.view.namespace.shown(topic))
    if error:
        raise ResourceError(error, NO_RIGHT)


async def _mark_for_deletion(context: RequestContext, topic: TopicImage, deadline: RequestDeadline) -> None:
    """Marks a topic for deletion, which the controller finishes. Raises ResourceError."""
    charge_client(context, len(topic.partitions))
    try:
        async with zookeeper_change(context, len(topic.partitions), wait_s=deadline.remaining_s):
            _check_still_allowed(context, topic)
            await context.services.metadata.store.delete_topic(
                context.services.metadata.current.image,
                instance_id=context.view.instance_id,
                name=context.view.namespace.shown(topic),
            )
    except ClusterError as failure:
        raise resource_error(context, failure) from failure


def _is_deleted(image: ClusterImage, topic: TopicImage) -> bool:
    """True if the metadata has no such topic, so that its name can be used again."""
    present = image.topics.get(topic.name)
    return present is None or present.topic_id != topic.topic_id


async def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Adds partitions to topics; existing ones stay where they are."""
    names = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    grown_topics: list[tuple[CreatedTopic, CreatePartitionsTopicResult]] = []
    time_slice = TimeSlice()
    deadline = None if request.validate_only else RequestDeadline(context, request.timeout_ms)
    for topic in request.topics:
        await time_slice.pause()
        try:
            if names[topic.name] > 1:
                raise ResourceError(ErrorCode.INVALID_REQUEST, "Duplicate topic in the request.")
            created_topics = await _add_partitions(context, topic, [plan for plan, _ in grown_topics], deadline)
        except ResourceError as error:
            results[topic.name] = CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=str(error)
            )
        else:
            results[topic.name] = CreatePartitionsTopicResult(name=topic.name, error_code=0)
            grown_topics.append((created_topics, results[topic.name]))
    if deadline is not None:
        await deadline.wait_until_applied(_has_grown, grown_topics)
    return CreatePartitionsResponse(results=list(results.values()))


async def _add_partitions(
    context: RequestContext,
    requested_topic: CreatePartitionsTopic,
    pending_creations: Sequence[CreatedTopic],
    deadline: RequestDeadline | None,
) -> CreatedTopic:
    """Grows a topic, or only validates that without `deadline`. `pending_creations` are those of the same request."""
    topic, error = context.named_topic(requested_topic.name)
    if error:
        raise ResourceError(
            error, "This server does not host this topic-partition." if topic is None else "Not allowed."
        )
    settings = context.services.coordination.settings
    if topic is not None and topic.name in (settings.groups_topic.name, settings.transactions_topic.name):
        # An id's partition follows from the number of partitions: after a change committed state would not be found.
        raise ResourceError(
            ErrorCode.INVALID_REQUEST, "The number of partitions of coordinators' topics never changes."
        )
    assignment = (
        None
        if requested_topic.assignments is None
        else [tuple(replicas.broker_ids) for replicas in requested_topic.assignments]
    )

    async def grow(*, validate_only: bool) -> CreatedTopic:
        return await context.services.metadata.store.create_partitions(
            context.services.metadata.current.image,
            TopicGrowth(
                context.view.instance_id, requested_topic.name, total=requested_topic.count, assignment=assignment
            ),
            validate_only=validate_only,
            pending_creations=pending_creations,
        )

    try:
        plan = await grow(validate_only=True)
        if deadline is None:
            return plan
        added = len(plan.assignment) - (0 if topic is None else len(topic.partitions))
        charge_client(context, added)
        async with zookeeper_change(
            context, max(added, 1), partitions=len(plan.assignment), wait_s=deadline.remaining_s
        ):
            if topic is not None:
                _check_still_allowed(context, topic)
            return await grow(validate_only=False)
    except ClusterError as failure:
        raise resource_error(context, failure) from failure


def _has_grown(image: ClusterImage, created_topics: CreatedTopic) -> bool:
    topic = image.topics.get(created_topics.internal_name)
    return topic is not None and len(topic.partitions) >= len(created_topics.assignment) and topic.has_leaders
