"""Permanent deletion of an instance that cannot be restored: topics, quotas, documents, ports and capacity."""

from __future__ import annotations

from django.db import transaction

from brokers.dataplane.admin_client import require_ok, send_as_cluster, send_as_instance
from brokers.dataplane.topics import KafkaTopicAdminClient, delete_topics_request
from brokers.models import Placement, PortLease
from brokers.placement import addresses, port_leases
from brokers.provisioning.publisher import Publisher
from brokers.provisioning.steps import ReconcileContext, RetryLater
from instances.lifecycle import operations
from instances.lifecycle.phases import Phase
from instances.models import DeletedTopic, Instance, OAuthConfiguration, RouteCertificates, TopicAllowList
from instances.services.common import set_phase
from tenants import audit
from tenants.errors import NotFound

TOPICS_PER_CALL = 100


def purge(context: ReconcileContext, publisher: Publisher | None) -> None:
    """Deletes the instance permanently. Topics are deleted first, by DeleteTopics, while the brokers know the instance.

    `publisher` is None for an instance that was never placed. Raises `RetryLater` while topics are still being deleted.
    """
    instance = context.instance
    placement = Placement.objects.select_related("cluster").filter(instance=instance).first()
    if placement is not None and publisher is not None:
        _delete_topics(placement, publisher)
        leases = PortLease.objects.filter(instance=instance)
        publisher.forget_quotas(instance.pk)
        publisher.unpublish_instance(instance.pk, leases.values_list("broker__number", "port"))
        publisher.forget_acks(instance.pk)
    with transaction.atomic():
        row = Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=instance.pk)
        if row.current_phase is not Phase.DELETING:
            return
        TopicAllowList.objects.filter(instance=row).delete()
        DeletedTopic.objects.filter(instance=row).delete()
        OAuthConfiguration.objects.filter(instance=row).delete()
        RouteCertificates.objects.filter(route__instance=row).delete()
        port_leases.release(row)
        Placement.objects.filter(instance=row).delete()
        addresses.write_endpoints(row)
        row.conditions = []
        row.observed_generation = row.generation
        row.save_changes(["endpoints", "conditions", "observed_generation", *set_phase(row, Phase.DELETED)])
        for operation in operations.open_operations(row):
            operations.succeed(operation)
        audit.record(context.acting, "instance.purged", row, tenant=row.tenant)


def _delete_topics(placement: Placement, publisher: Publisher) -> None:
    if placement.cluster.is_kafka:
        _delete_upstream_topics(placement.instance_id)
        return
    names = publisher.topics_of(placement.instance_id)
    for start in range(0, len(names), TOPICS_PER_CALL):
        response = send_as_cluster(placement.cluster, delete_topics_request(names[start : start + TOPICS_PER_CALL]))
        for result in response.responses:
            try:
                require_ok(result.error_code, getattr(result, "error_message", None))
            except NotFound:
                continue
    if publisher.topics_of(placement.instance_id):
        raise RetryLater("topics are being deleted")


def _delete_upstream_topics(instance_id: str) -> None:
    """Deletes the topics that the gateways of a Kafka cluster show to the instance."""
    topics = KafkaTopicAdminClient()
    names = [topic.name for topic in topics.topics(instance_id)]
    for start in range(0, len(names), TOPICS_PER_CALL):
        request = delete_topics_request(names[start : start + TOPICS_PER_CALL])
        for result in send_as_instance(instance_id, request).responses:
            try:
                require_ok(result.error_code)
            except NotFound:
                continue
    if topics.topics(instance_id):
        raise RetryLater("topics are being deleted")
