"""Implementation of `instances.interfaces.data_plane`: topics and configs by Metadata, CreateTopics,
DescribeConfigs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.utils.translation import gettext_noop
from kafka.protocol.admin.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.admin.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.metadata.metadata import MetadataRequest

from brokers.dataplane.admin_client import require_ok, send_as_cluster, send_as_instance, send_change
from brokers.dataplane.scatter import send_all_to_any_broker, send_to_any_broker
from brokers.limits import ADMIN_CLIENT_ANSWER_TIMEOUT_S
from brokers.models import Placement
from instances import naming
from instances.interfaces import ConfigEntry, PartitionSummary, TopicDescription
from tenants.errors import Message, NotFound, OutcomeUnknown, Unavailable

METADATA_VERSION = 11
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 5  # by name; later versions support ids, too
CREATE_PARTITIONS_VERSION = 3
DESCRIBE_CONFIGS_VERSION = 4
ALTER_CONFIGS_VERSION = 1

RETENTION, CLEANUP = "retention.ms", "cleanup.policy"
# Topics whose settings one request describes.
CONFIGS_PER_REQUEST = 500
NO_SUCH_TOPIC = frozenset({3, 17})  # unknown, or a name that no topic may have
TOPIC_RESOURCE = 2
SET, DELETE = 0, 1
TOPIC_CONFIG_SOURCE = 1
TIMED_OUT, ALREADY_EXISTS, INVALID_PARTITIONS = 7, 36, 37
TIMEOUT_MS = int(ADMIN_CLIENT_ANSWER_TIMEOUT_S * 1000) - 500


class KafkaTopicAdminClient:
    """Implements `instances.interfaces.DataPlane`."""

    def topics(self, instance_id: str) -> Sequence[TopicDescription]:
        response = send_to_any_broker(instance_id, lambda: metadata_request(None))
        return [_description(topic) for topic in response.topics if not topic.error_code and not topic.is_internal]

    def topic(self, instance_id: str, name: str) -> TopicDescription:
        return _named_description(name, send_to_any_broker(instance_id, lambda: metadata_request([name])))

    def topic_config(self, instance_id: str, name: str) -> Sequence[ConfigEntry]:
        return _config_entries(send_to_any_broker(instance_id, lambda: _config_request(name)))

    def topic_configs(self, instance_id: str, names: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        """Returns some settings of topics by name; a topic that cannot be described is left out."""
        result: dict[str, dict[str, str]] = {}
        for begin in range(0, len(names), CONFIGS_PER_REQUEST):
            part = names[begin : begin + CONFIGS_PER_REQUEST]
            response = send_to_any_broker(instance_id, partial(_configs_request, part, keys))
            for described in response.results:
                if not described.error_code:
                    result[described.resource_name] = {
                        config.name: config.value for config in described.configs if config.value is not None
                    }
        return result

    def topic_with_config(self, instance_id: str, name: str) -> tuple[TopicDescription, Sequence[ConfigEntry]]:
        metadata_response, config_response = send_all_to_any_broker(
            instance_id, [lambda: metadata_request([name]), lambda: _config_request(name)]
        )
        return _named_description(name, metadata_response), _config_entries(config_response)

    def create_topic(
        self,
        instance_id: str,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        validate_only: bool,
    ) -> None:
        topic_class = CreateTopicsRequest.CreatableTopic
        topic = topic_class(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=[topic_class.CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only, version=CREATE_TOPICS_VERSION
        )
        if validate_only:
            (result,) = send_as_instance(instance_id, request).topics
            require_ok(result.error_code, result.error_message)
            return
        response, may_be_executed = send_change(instance_id, request)
        (result,) = response.topics
        if result.error_code == TIMED_OUT:
            self._require_visible(instance_id, name, lambda partitions: partitions > 0)
        elif may_be_executed and result.error_code == ALREADY_EXISTS:
            raise OutcomeUnknown  # it may be the topic of the earlier attempt, or an older one
        else:
            require_ok(result.error_code, result.error_message)

    def grow_topic(self, instance_id: str, name: str, partitions: int, *, validate_only: bool) -> None:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only, version=CREATE_PARTITIONS_VERSION
        )
        if validate_only:
            (result,) = send_as_instance(instance_id, request).results
            require_ok(result.error_code, result.error_message)
            return
        response, may_be_executed = send_change(instance_id, request)
        (result,) = response.results
        if result.error_code == TIMED_OUT or (may_be_executed and result.error_code == INVALID_PARTITIONS):
            self._require_visible(instance_id, name, lambda visible: visible >= partitions)
        else:
            require_ok(result.error_code, result.error_message)

    def alter_topic_config(
        self, instance_id: str, name: str, config: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        resource_class = IncrementalAlterConfigsRequest.AlterConfigsResource
        changes = [
            resource_class.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in config.items()
        ]
        resource = resource_class(resource_type=TOPIC_RESOURCE, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only, version=ALTER_CONFIGS_VERSION
        )
        response = send_as_instance(instance_id, request) if validate_only else send_change(instance_id, request)[0]
        (result,) = response.responses
        if result.error_code == TIMED_OUT and not validate_only:
            raise OutcomeUnknown
        require_ok(result.error_code, result.error_message)

    def delete_topic(self, instance_id: str, name: str) -> None:
        response, may_be_executed = send_change(instance_id, delete_topics_request([name]))
        (result,) = response.responses
        if result.error_code == TIMED_OUT:
            self._require_visible(instance_id, name, lambda partitions: partitions == 0)
        elif result.error_code not in NO_SUCH_TOPIC or not may_be_executed:
            require_ok(result.error_code, getattr(result, "error_message", None))

    def delete_hidden_topic(self, instance_id: str, name: str) -> None:
        placement = Placement.objects.select_related("cluster").filter(instance_id=instance_id).first()
        if placement is None:
            return
        (result,) = send_as_cluster(
            placement.cluster, delete_topics_request([naming.internal_topic(instance_id, name)])
        ).responses
        # The topic is marked for deletion or was not written: the sweep repeats the request.
        if result.error_code == TIMED_OUT:
            raise OutcomeUnknown
        if result.error_code not in NO_SUCH_TOPIC:
            require_ok(result.error_code, getattr(result, "error_message", None))

    def _require_visible(self, instance_id: str, name: str, is_expected: Callable[[int], bool]) -> None:
        """Raises `OutcomeUnknown` unless a topic has the expected number of partitions, 0 for none.

        `TIMED_OUT` is returned for requests that were not written, and for written ones that are not completed, such as
        a topic whose leaders wait for the next controller. A visible result counts as done: an error would roll back
        its audit row. An invisible one may still appear, or was never written.
        """
        try:
            partitions = len(self.topic(instance_id, name).partitions)
        except NotFound:
            partitions = 0
        except Unavailable as error:
            raise OutcomeUnknown from error
        if not is_expected(partitions):
            raise OutcomeUnknown


def metadata_request(names: Sequence[str] | None) -> Any:
    """Returns a Metadata request for some topics or all, without automatic creation."""
    topic_class = MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [topic_class(topic_id=uuid.UUID(int=0), name=name) for name in names]
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        version=METADATA_VERSION,
    )


def delete_topics_request(names: Sequence[str]) -> Any:
    """Returns a DeleteTopics request by names."""
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS, version=DELETE_TOPICS_VERSION)


def _config_request(name: str) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=False, version=DESCRIBE_CONFIGS_VERSION
    )


def _configs_request(names: Sequence[str], keys: Sequence[str]) -> Any:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=list(keys)
        )
        for name in names
    ]
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=False, include_documentation=False, version=DESCRIBE_CONFIGS_VERSION
    )


def _config_entries(response: Any) -> Sequence[ConfigEntry]:
    (result,) = response.results
    require_ok(result.error_code, result.error_message)
    return sorted(
        (
            ConfigEntry(
                name=config.name,
                value=None if config.is_sensitive else config.value,
                is_default=config.config_source != TOPIC_CONFIG_SOURCE,
                is_read_only=config.read_only,
                default=next(
                    (synonym.value for synonym in config.synonyms or () if synonym.source != TOPIC_CONFIG_SOURCE),
                    None,
                ),
            )
            for config in result.configs
        ),
        key=lambda entry: entry.name,
    )


def _named_description(name: str, response: Any) -> TopicDescription:
    (result,) = response.topics
    if result.error_code in NO_SUCH_TOPIC or result.is_internal:
        raise NotFound(Message(gettext_noop('There is no topic "%(name)s".'), name=name))
    require_ok(result.error_code)
    return _description(result)


def _description(topic: Any) -> TopicDescription:
    partitions = (
        PartitionSummary(
            index=partition.partition_index,
            leader=partition.leader_id,
            replicas=tuple(partition.replica_nodes),
            isr=tuple(partition.isr_nodes),
        )
        for partition in topic.partitions
    )
    return TopicDescription(
        name=topic.name,
        topic_id=str(topic.topic_id),
        partitions=tuple(sorted(partitions, key=lambda partition: partition.index)),
    )
