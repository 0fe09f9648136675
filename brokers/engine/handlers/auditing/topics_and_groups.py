"""Audit descriptions of changes of topics, records, groups and offsets.

Commits of offsets are described only if the client is no member of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, Final

from brokers.contract.audit import DONE, AuditItem
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.auditing.changes import (
    COMMITTED,
    DESCRIBED_ITEMS_MAX,
    PARTITIONS_MAX,
    AuditedRequest,
    Change,
    ItemResult,
    difference,
    error_of,
    first_error,
)
from brokers.engine.protocol.messages.configs import AlterConfigsResource, IncrementalAlterConfigsResource
from brokers.engine.protocol.messages.topics import CreatableTopic, DeleteTopicState

TOPIC: Final = "topic"
_TOPIC_RESOURCE: Final = 2
GROUP: Final = "group"
_NO_GENERATION: Final = -1


def pair_with_results(audited: Iterable[Any], results: Iterable[Any] | None) -> Iterator[tuple[Any, Any]]:
    """Pairs each requested item with its result, None where there is none."""
    return zip(audited, repeat(None) if results is None else results, strict=False)


# -- created, deleted, grown ------------------------------------------------------------------------------------------


def describe_topic_creation(audited: AuditedRequest) -> Change | None:
    """Describes a CreateTopics; None if it only validates."""
    if audited.request.validate_only:
        return None
    topics = audited.request.topics
    pairs = pair_with_results(topics, None if audited.response is None else audited.response.topics)
    results = (
        ItemResult(error_of(result), topic.name, partial(_created_item, audited, topic)) for topic, result in pairs
    )
    return Change("topic.created", TOPIC, len(topics), results)


def _created_item(audited: AuditedRequest, requested_topic: CreatableTopic) -> AuditItem:
    topic = audited.topic_now(requested_topic.name)
    if topic is not None:
        after = topic_properties(topic)
    else:
        after = {
            "partitions": len(requested_topic.assignments) or requested_topic.num_partitions,
            "replication_factor": requested_topic.replication_factor,
            "config": {config.name: config.value for config in requested_topic.configs},
        }
    return AuditItem(action="topic.created", kind=TOPIC, name=requested_topic.name, after=after)


def topic_properties(topic: TopicImage) -> dict[str, Any]:
    """Returns the properties of a topic that an audit event shows."""
    return {
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].target) if topic.partitions else 0,
        "config": dict(topic.config),
    }


def describe_topic_deletion(audited: AuditedRequest) -> Change | None:
    """Describes a DeleteTopics."""
    request = audited.request
    states = request.topics or request.topic_names
    if audited.response is not None:
        results = (
            ItemResult(result.error_code, result.name or "", partial(_deleted_item, audited, result.name or ""))
            for result in audited.response.responses
        )
        return Change("topic.deleted", TOPIC, len(states), results)
    names = (_name_of(audited, state) for state in states)
    results = (ItemResult(error_of(None), name, partial(_deleted_item, audited, name)) for name in names)
    return Change("topic.deleted", TOPIC, len(states), results)


def _name_of(audited: AuditedRequest, state: DeleteTopicState | str) -> str:
    if isinstance(state, str):
        return state
    if state.name is not None:
        return state.name
    topic = audited.context.view.namespace.topic_by_id(state.topic_id)
    return "" if topic is None else audited.context.view.namespace.shown(topic)


def _deleted_item(audited: AuditedRequest, name: str) -> AuditItem | None:
    topic = audited.topic(name)
    if audited.response is None and topic is None:
        return None
    before = None if topic is None else topic_properties(topic)
    return AuditItem(action="topic.deleted", kind=TOPIC, name=name, before=before)


def describe_topic_growth(audited: AuditedRequest) -> Change | None:
    """Describes a CreatePartitions; None if it only validates."""
    request = audited.request
    if request.validate_only:
        return None
    counts = {topic.name: topic.count for topic in islice(request.topics, DESCRIBED_ITEMS_MAX)}
    if audited.response is None:
        item_errors = ((topic.name, error_of(None)) for topic in request.topics)
    else:
        item_errors = ((result.name, result.error_code) for result in audited.response.results)
    results = (
        ItemResult(error, name, partial(_grown_item, audited, name, counts.get(name, 0))) for name, error in item_errors
    )
    return Change("topic.changed", TOPIC, len(request.topics), results)


def _grown_item(audited: AuditedRequest, name: str, count: int) -> AuditItem:
    topic = audited.topic(name)
    before = None if topic is None else {"partitions": len(topic.partitions)}
    return AuditItem(action="topic.changed", kind=TOPIC, name=name, before=before, after={"partitions": count})


# -- configured -------------------------------------------------------------------------------------------------------


def describe_topic_configuration(audited: AuditedRequest) -> Change | None:
    """Describes the changes of topics by an AlterConfigs or IncrementalAlterConfigs; None if it only validates."""
    request = audited.request
    if request.validate_only:
        return None
    pairs = pair_with_results(request.resources, None if audited.response is None else audited.response.responses)
    results = (
        ItemResult(
            _config_error(audited, resource, result),
            resource.resource_name,
            partial(_configured_item, audited, resource),
        )
        for resource, result in pairs
    )
    return Change("topic.changed", TOPIC, len(request.resources), results)


def _config_error(audited: AuditedRequest, resource: Any, result: Any) -> int:
    """Returns the error code of a change; a recorded change was written even if its response is missing."""
    setting_changes = audited.context.setting_changes or {}
    return 0 if result is None and resource.resource_name in setting_changes else error_of(result)


def _configured_item(
    audited: AuditedRequest, resource: AlterConfigsResource | IncrementalAlterConfigsResource
) -> AuditItem | None:
    if resource.resource_type != _TOPIC_RESOURCE:
        return None
    name = resource.resource_name
    setting_change = (audited.context.setting_changes or {}).get(name)
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    if setting_change is None:
        # The outcome is unknown: the requested values are reported.
        before, after = {}, {config.name: config.value for config in resource.configs}
    else:
        before, after = difference(*setting_change)
        if not before and not after:
            return None
    return AuditItem(
        action="topic.changed", kind=TOPIC, name=name, before={"config": dict(before)}, after={"config": dict(after)}
    )


# -- deleted records --------------------------------------------------------------------------------------------------


def describe_record_deletion(audited: AuditedRequest) -> Change | None:
    """Describes a DeleteRecords."""
    topics = audited.request.topics
    pairs = pair_with_results(topics, None if audited.response is None else audited.response.topics)
    results = (
        ItemResult(
            error_of(None) if result is None else first_error(result.partitions),
            topic.name,
            partial(_deleted_records_item, topic, result),
        )
        for topic, result in pairs
    )
    return Change("topic.records_deleted", TOPIC, len(topics), results)


def _deleted_records_item(topic: Any, result: Any) -> AuditItem | None:
    if result is None:
        first_offset_by_index = {
            partition.partition_index: partition.offset for partition in topic.partitions[:PARTITIONS_MAX]
        }
    else:
        successful_partitions = (
            partition for partition in islice(result.partitions, DESCRIBED_ITEMS_MAX) if not partition.error_code
        )
        first_offset_by_index = {
            partition.partition_index: partition.low_watermark
            for partition in islice(successful_partitions, PARTITIONS_MAX)
        }
    after = {
        "partitions": len(topic.partitions),
        "first_offsets": {str(index): offset for index, offset in first_offset_by_index.items()},
    }
    return AuditItem(action="topic.records_deleted", kind=TOPIC, name=topic.name, after=after)


# -- groups -----------------------------------------------------------------------------------------------------------


def describe_group_deletion(audited: AuditedRequest) -> Change | None:
    """Describes a DeleteGroups."""
    names = audited.request.groups_names
    if audited.response is None:
        item_errors: Iterable[tuple[str, int]] = ((name, error_of(None)) for name in names)
    else:
        item_errors = ((result.group_id, result.error_code) for result in audited.response.results)
    item = partial(AuditItem, action="group.deleted", kind=GROUP)
    results = (ItemResult(error, name, partial(item, name=name)) for name, error in item_errors)
    return Change("group.deleted", GROUP, len(names), results)


def describe_offset_deletion(audited: AuditedRequest) -> Change | None:
    """Describes an OffsetDelete."""
    request, response = audited.request, audited.response
    if response is None:
        error = error_of(None)
    else:
        error = response.error_code or first_error(_partitions(response.topics))
    result = ItemResult(error, request.group_id, partial(_deleted_offsets_item, request))
    return Change("group.offsets_deleted", GROUP, 1, (result,))


def _deleted_offsets_item(request: Any) -> AuditItem:
    names = (f"{topic.name}-{partition.partition_index}" for topic in request.topics for partition in topic.partitions)
    before = {"partitions": _count(request.topics), "of": list(islice(names, PARTITIONS_MAX))}
    return AuditItem(action="group.offsets_deleted", kind=GROUP, name=request.group_id, before=before)


def describe_offset_commit(audited: AuditedRequest) -> Change | None:
    """Describes an OffsetCommit by a client that is no member: an administrator, or a consumer without group
    management. Commits of members, which are frequent, are not recorded (None).
    """
    request, response = audited.request, audited.response
    if request.generation_id_or_member_epoch != _NO_GENERATION or request.member_id or request.group_instance_id:
        return None
    error = error_of(None) if response is None else first_error(_partitions(response.topics))
    result = ItemResult(error, request.group_id, partial(_committed_offsets_item, request))
    return Change(COMMITTED, GROUP, 1, (result,))


def _committed_offsets_item(request: Any) -> AuditItem:
    offsets = (
        (f"{topic.name}-{partition.partition_index}", partition.committed_offset)
        for topic in request.topics
        for partition in topic.partitions
    )
    after = {"partitions": _count(request.topics), "offsets": dict(islice(offsets, PARTITIONS_MAX))}
    return AuditItem(action=COMMITTED, kind=GROUP, name=request.group_id, outcome=DONE, after=after)


def _partitions(topics: Iterable[Any]) -> Iterator[Any]:
    return chain.from_iterable(topic.partitions for topic in topics)


def _count(topics: Iterable[Any]) -> int:
    return sum(len(topic.partitions) for topic in topics)
