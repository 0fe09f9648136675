"""FindCoordinator: the coordinator of a group or a transactional id (GRP-1…3, TXN-1, CKA-6).

The state topic of the coordinators is created at the first request for one of them.
"""

from __future__ import annotations

from typing import Final

import structlog

from brokers.contract.acls import ResourceType
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster.errors import ClusterError, TopicExists
from brokers.engine.cluster.topic_plans import TopicSpec
from brokers.engine.coordinators.partitioning import partition_of
from brokers.engine.coordinators.settings import StateTopic
from brokers.engine.handlers.context import Endpoint, RequestContext, TenantMetadataView
from brokers.engine.handlers.served_api import DENIAL_TEXTS
from brokers.engine.handlers.services import BrokerServices, CoordinatorServices, MetadataServices
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

log = structlog.get_logger(__name__)

GROUP, TRANSACTION = 0, 1
_RESOURCES: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
KEYS_MAX: Final = 10_000
_BATCHED_FROM: Final = 4

_NO_ENDPOINT: Final = Endpoint(-1, "", -1, None)


def find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=[
                _find(context, request.key_type, key, is_excessive=number >= KEYS_MAX)
                for number, key in enumerate(request.coordinator_keys)
            ]
        )
    result = _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        node_id=result.node_id,
        host=result.host,
        port=result.port,
        coordinators=[],
    )


def coordinator_of(services: BrokerServices, key_type: int, internal_id: str) -> int:
    """Returns the broker that leads the id's partition of the state topic, -1 if there is none."""
    topic = services.metadata.current.image.topics.get(_state_topic(services.coordination, key_type).name)
    if topic is None or topic.deleting or not topic.partitions:
        return NO_LEADER
    partition = topic.partitions[partition_of(internal_id, len(topic.partitions))]
    return partition.leader if partition.leader in services.metadata.current.image.brokers else NO_LEADER


def _find(context: RequestContext, key_type: int, key: str, *, is_excessive: bool = False) -> Coordinator:
    endpoint, error, message = _NO_ENDPOINT, ErrorCode.NONE, None
    if is_excessive:
        error, message = ErrorCode.INVALID_REQUEST, f"A request may name {KEYS_MAX} keys."
    elif key_type not in _RESOURCES:
        error, message = ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}."
    elif denied := context.denial(_RESOURCES[key_type], key):
        error, message = ErrorCode(denied), DENIAL_TEXTS[denied]
    else:
        internal_id = context.view.namespace.internal_id(key)
        leader = coordinator_of(context.services, key_type, internal_id)
        if leader == NO_LEADER:
            error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, ensure_state_topic(context.services, key_type)
        else:
            result = context.view.endpoints.get(leader) or forwarding_endpoint(context.view, internal_id)
            if result is None:
                error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker of this instance is alive."
            else:
                endpoint = result
    return Coordinator(
        key=key,
        node_id=endpoint.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=int(error),
        error_message=message,
    )


def forwarding_endpoint(view: TenantMetadataView, internal_id: str) -> Endpoint | None:
    """Returns the broker of the instance that forwards to a coordinator outside of it (`coordinator_forwarding`), the
    same one from every broker; None if none is alive.
    """
    live = list(view.endpoints.values())
    return live[partition_of(internal_id, len(live))] if live else None


def _state_topic(coordination: CoordinatorServices, key_type: int) -> StateTopic:
    settings = coordination.settings
    return settings.groups_topic if key_type == GROUP else settings.transactions_topic


def ensure_state_topic(services: BrokerServices, key_type: int) -> str:
    """Creates the state topic if it does not exist. Returns a message that says what the client waits for."""
    state_topic = _state_topic(services.coordination, key_type)
    image = services.metadata.current.image
    if state_topic.name in image.topics:
        return "The coordinator is being elected."
    live = sum(1 for broker in image.brokers.values() if not broker.stopping)
    if live < state_topic.replication_factor:
        return f"{state_topic.replication_factor} brokers must live before the first coordinator can work, {live} do."
    if state_topic.name not in services.metadata.topics_being_created:
        services.metadata.topics_being_created.add(state_topic.name)
        services.spawn(_create(services.metadata, state_topic))
    return "Coordinators are being set up."


async def _create(metadata: MetadataServices, state_topic: StateTopic) -> None:
    try:
        await metadata.store.create_topic(
            metadata.current.image,
            TopicSpec(
                None,
                state_topic.name,
                partitions=state_topic.partitions,
                replication_factor=state_topic.replication_factor,
                config=state_topic.config,
            ),
        )
    except TopicExists:
        log.debug("state_topic_exists", topic=state_topic.name)
    except ClusterError as error:
        log.warning("state_topic_not_made", topic=state_topic.name, reason=str(error))
    else:
        log.info("state_topic_made", topic=state_topic.name, partitions=state_topic.partitions)
    finally:
        metadata.topics_being_created.discard(state_topic.name)
