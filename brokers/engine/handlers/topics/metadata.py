"""Metadata and DescribeCluster: the brokers and topics that are visible on a listener (WIRE-12, WIRE-13, CKA-5, CKA-6,
CKA-10).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Final

import structlog

from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from brokers.contract.audit import AuditItem
from brokers.contract.partitions import NO_LEADER
from brokers.engine.access.authorizer import UNKNOWN_TOPIC_OR_PARTITION, Operation, is_admitted
from brokers.engine.cluster.errors import ClusterError, PolicyViolation, ProhibitedTopic, Refused, TopicExists
from brokers.engine.cluster.image import PartitionImage, TopicImage
from brokers.engine.cluster.topic_admin import CreatedTopic
from brokers.engine.cluster.topic_plans import TopicSpec
from brokers.engine.handlers.common.long_requests import ELEMENTS_PER_TURN_MAX
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.zookeeper_change import try_charge_mutation, zookeeper_change
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.cluster import (
    BROKER_ENDPOINTS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from brokers.engine.protocol.messages.metadata import (
    OPERATIONS_NOT_ASKED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from brokers.engine.scheduling.time_slice import FREED_AT_ONCE_MAX, TimeSlice, yield_to_others
from instances.naming import is_valid_topic_name

log = structlog.get_logger(__name__)

# Operations on topics, and on the cluster, as bits by operation number. Those on topics are grouped by the allow-list
# that they require in addition to a right.
TOPIC_OPERATIONS: Final[Mapping[Operation, int]] = {
    Operation.CONSUME: 1 << 3,
    Operation.PRODUCE: 1 << 4,
    Operation.ADMINISTER: sum(1 << operation for operation in (5, 6, 7, 11)),
    Operation.DESCRIBE: sum(1 << operation for operation in (8, 10)),
}
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
# Maximum number of topics being auto-created, of all instances together and of one instance.
AUTO_CREATIONS_MAX: Final = 10_000
AUTO_CREATIONS_PER_INSTANCE_MAX: Final = 500
# New topics of one request that are checked before the response: each is compared with all topics of the instance.
CHECKED_AT_ONCE_MAX: Final = 10

_LISTENER_NOT_FOUND_FROM: Final = 6
_TOPIC_IDS_FROM: Final = 12
_CONTROLLER_ENDPOINTS: Final = 2


def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Returns the response, or an awaitable of it if it is long."""
    view = context.view
    brokers = [
        MetadataResponseBroker(node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
        for endpoint in view.endpoints.values()
    ]
    response = MetadataResponse(
        brokers=brokers,
        cluster_id=view.cluster_id,
        controller_id=view.controller_id,
        topics=[],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )
    element_count, topics = 0, _topics(context, request)
    for topic in topics:
        element_count += _add(response, topic)
        if element_count >= ELEMENTS_PER_TURN_MAX:
            return _complete(response, topics)
    return response


async def _complete(response: MetadataResponse, topics: Iterator[MetadataResponseTopic | None]) -> MetadataResponse:
    """Adds the remaining topics to `response`."""
    await yield_to_others()
    time_slice = TimeSlice()
    for topic in topics:
        _add(response, topic)
        await time_slice.pause()
    return response


def _add(response: MetadataResponse, topic: MetadataResponseTopic | None) -> int:
    """Adds a topic, None if it is not shown. Returns the number of elements that it counts as (`long_requests`)."""
    if topic is None:
        return 1
    response.topics.append(topic)
    return 1 + len(topic.partitions)


def cluster_operations(context: RequestContext) -> int:
    """Returns the operations that are allowed on the cluster; 0 without DESCRIBE on the cluster."""
    if context.denial(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE):
        return 0
    return CLUSTER_OPERATIONS & context.authorised_operations(ResourceType.CLUSTER)


def _topics(context: RequestContext, request: MetadataRequest) -> Iterator[MetadataResponseTopic | None]:
    """Yields the requested topics. A listing omits topics without any right (CKA-11); None stands for each of them."""
    if request.topics is None or (context.version == 0 and not request.topics):
        namespace = context.view.namespace
        for _, topic in sorted(namespace.topics.items()):
            refusal = context.refusal(topic, namespace.shown(topic))
            yield None if refusal else _describe(context, topic, request)
        return
    remaining_checks = repeat(True, CHECKED_AT_ONCE_MAX)
    for requested_topic in _without_repetitions(context, request.topics or ()):
        yield (
            None
            if requested_topic is None
            else _describe_requested(context, requested_topic, request, remaining_checks)
        )


def _without_repetitions(
    context: RequestContext, topics: Iterable[MetadataRequestTopic]
) -> Iterator[MetadataRequestTopic | None]:
    """Yields each topic once, as Kafka does, since repetitions could multiply the response without limit. None stands
    for a repetition, because skipping it takes time as well. In versions without topic ids, every topic that is given
    by id is yielded, to be rejected by itself.
    """
    has_ids = context.version >= _TOPIC_IDS_FROM
    seen: set[tuple[str | None, bytes]] = set()
    for requested_topic in topics:
        key = requested_topic.name, requested_topic.topic_id
        if key not in seen and (has_ids or requested_topic.topic_id == UUID_ZERO):
            seen.add(key)
            yield requested_topic
        else:
            yield None
    if not has_ids:
        yield from (requested_topic for requested_topic in topics if requested_topic.topic_id != UUID_ZERO)
    # A long request has time slices between elements: the set is freed within them.
    while len(seen) > FREED_AT_ONCE_MAX:
        for _ in range(FREED_AT_ONCE_MAX):
            seen.pop()
        yield None


def _describe_requested(
    context: RequestContext,
    requested_topic: MetadataRequestTopic,
    request: MetadataRequest,
    remaining_checks: Iterator[bool],
) -> MetadataResponseTopic:
    namespace = context.view.namespace
    name = requested_topic.name
    if name is None or requested_topic.topic_id != UUID_ZERO:
        if context.version < _TOPIC_IDS_FROM or requested_topic.topic_id == UUID_ZERO:
            return _error_topic(ErrorCode.INVALID_REQUEST, name or "", requested_topic.topic_id)
        by_id = namespace.topic_by_id(requested_topic.topic_id)
        if by_id is None:
            return _error_topic(ErrorCode.UNKNOWN_TOPIC_ID, None, requested_topic.topic_id)
        if refusal := context.refusal(by_id, namespace.shown(by_id)):
            is_gone = refusal == UNKNOWN_TOPIC_OR_PARTITION
            return _error_topic(ErrorCode.UNKNOWN_TOPIC_ID if is_gone else refusal, None, requested_topic.topic_id)
        return _describe(context, by_id, request)
    topic = namespace.topics.get(name.encode())
    error = context.refusal(topic, name)
    if topic is not None and not error:
        return _describe(context, topic, request)
    if error == UNKNOWN_TOPIC_OR_PARTITION:
        if not is_valid_topic_name(name):
            error = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        elif request.allow_auto_topic_creation:
            error = _auto_create(context, name, error, remaining_checks)
    return _error_topic(error, name, UUID_ZERO)


def _error_topic(error: int, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=False, partitions=[])


def _describe(context: RequestContext, topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=context.view.namespace.shown(topic),
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=[_partition(context, partition) for partition in topic.partitions],
        topic_authorized_operations=(
            _operations(context, topic) if request.include_topic_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _operations(context: RequestContext, topic: TopicImage) -> int:
    admitted = sum(
        bits for operation, bits in TOPIC_OPERATIONS.items() if is_admitted(topic, operation, context.address)
    )
    return admitted & context.authorised_operations(ResourceType.TOPIC, context.view.namespace.shown(topic))


def _partition(context: RequestContext, partition: PartitionImage) -> MetadataResponsePartition:
    view = context.view
    error = 0
    leader = partition.leader
    if leader == NO_LEADER or leader not in view.image.brokers:
        error, leader = int(ErrorCode.LEADER_NOT_AVAILABLE), NO_LEADER
    elif leader not in view.endpoints:
        known = context.version >= _LISTENER_NOT_FOUND_FROM
        error = int(ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE)
        leader = NO_LEADER
    replicas, isr = list(partition.replicas), list(partition.isr)
    offline = [replica for replica in replicas if replica not in view.endpoints]
    if offline and context.version == 0:
        # Clients of version 0 take every listed broker for a live one.
        replicas = [replica for replica in replicas if replica in view.endpoints]
        isr = [replica for replica in isr if replica in view.endpoints]
        error = error or int(ErrorCode.REPLICA_NOT_AVAILABLE)
    return MetadataResponsePartition(
        error_code=error,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def _auto_create(context: RequestContext, name: str, error: int, remaining_checks: Iterator[bool]) -> int:
    """Starts to create the topic if the instance's settings allow it, and returns the error code for the client, which
    retries after LEADER_NOT_AVAILABLE (5). The code of a topic that cannot be created states the reason, as long as
    `remaining_checks` allows more checks in this request.
    """
    view, services = context.view, context.services
    instance = view.instance
    if instance is None or view.state != "active" or not instance.document.settings.auto_create_topics:
        return error
    if context.denial(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.CREATE):
        denied = context.denial(ResourceType.TOPIC, name, AclOperation.CREATE)
        if denied:
            return denied
    internal_name = view.namespace.internal_topic(name)
    if internal_name not in services.metadata.topics_being_created:
        instance_creations = services.metadata.topics_being_created.of_instance(view.instance_id)
        if (
            instance_creations >= AUTO_CREATIONS_PER_INSTANCE_MAX
            or len(services.metadata.topics_being_created) >= AUTO_CREATIONS_MAX
        ):
            return error
        if next(remaining_checks, False):
            try:
                services.metadata.store.plan_topic(view.image, TopicSpec(view.instance_id, name))
            except TopicExists:
                return int(ErrorCode.LEADER_NOT_AVAILABLE)  # the metadata will have it soon
            except Refused as refusal:
                _record_refusal(context, name, refusal)
                return _client_error_code(refusal)
        services.metadata.topics_being_created.add(internal_name)
        services.spawn(_create(context, name, internal_name))
    return int(ErrorCode.LEADER_NOT_AVAILABLE)


async def _create(context: RequestContext, name: str, internal_name: str) -> None:
    services = context.services
    try:
        async with services.metadata.topics_being_created.turn(context.view.instance_id):
            plan = services.metadata.store.plan_topic(
                services.metadata.current.image, TopicSpec(context.view.instance_id, name)
            )
            count = len(plan.assignment)
            try_charge_mutation(context, count)
            async with zookeeper_change(context, count, partitions=count):
                await services.metadata.store.create_topic(
                    services.metadata.current.image, TopicSpec(context.view.instance_id, name)
                )
        _audit_created(context, name, plan)
    except ClusterError as failure:
        _record_refusal(context, name, failure)
    finally:
        services.metadata.topics_being_created.discard(internal_name)


def _audit_created(context: RequestContext, name: str, created: CreatedTopic) -> None:
    """Writes the auto-creation to the audit log, as an act of the client that produced or read."""
    instance_id = context.view.instance_id
    if instance_id is None or context.view.internal:
        return
    after = {
        "partitions": len(created.assignment),
        "replication_factor": created.replication_factor,
        "automatically": True,
    }
    item = AuditItem(action="topic.created", kind="topic", name=name, after=after)
    context.services.access.audit.report_changes(instance_id, context.source, (item,))


def _client_error_code(refusal: Refused) -> int:
    """Returns the error code of a topic that cannot be created.

    librdkafka reports only invalid topics to its user; after POLICY_VIOLATION and INVALID_REQUEST it retries forever,
    as it should where only a broker is down.
    """
    if isinstance(refusal, PolicyViolation | ProhibitedTopic):
        return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return refusal.wire_code


def _record_refusal(context: RequestContext, name: str, failure: ClusterError) -> None:
    """Records the failure for the owner, and logs it once for the operator, since clients retry many times a second."""
    instance_id = context.view.instance_id
    assert instance_id is not None, "the cluster's own topics are not auto-created"
    services = context.services
    if services.accounting.accountings.get_or_create(instance_id).refused_topics.record(
        name, str(failure), services.clock.now_ms()
    ):
        log.info("topic_not_created", instance_id=instance_id, reason=str(failure))


def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    view = context.view
    if request.endpoint_type != BROKER_ENDPOINTS:
        known = request.endpoint_type == _CONTROLLER_ENDPOINTS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="Only broker endpoints are described here.",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=view.cluster_id,
        controller_id=view.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
            for endpoint in view.endpoints.values()
        ],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )
