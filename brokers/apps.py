"""Django application of brokers: plugs data plane, monitoring, capacity and reconciler into interfaces of
lower apps.
"""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BrokersConfig(AppConfig):
    name = "brokers"
    verbose_name = _("Brokers")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from brokers import limits, selectors, tasks
        from brokers.dataplane import (
            acls,
            client_quotas,
            groups,
            messages,
            record_deletion,
            topic_records,
            topics,
            transactions,
            users,
        )
        from brokers.monitoring import connections, observe, topic_clients, topic_report
        from brokers.operations.instance_capacity import InstanceCapacity
        from instances import interfaces as instances_interfaces
        from instances.acls.interfaces import acl_admin_client
        from instances.clients.interfaces import connection_admin_client, topic_traffic
        from instances.copying.interfaces import record_log
        from instances.groups import interfaces
        from instances.messages.interfaces import message_admin_client
        from instances.topics import interfaces as topic_interfaces
        from instances.users.interfaces import user_admin_client
        from quotas import interfaces as quota_interfaces

        limits.publish()
        instances_interfaces.data_plane.plug(topics.KafkaTopicAdminClient())
        instances_interfaces.delete_records.plug(record_deletion.delete_records)
        instances_interfaces.observation.plug(observe.AdminPortObservation())
        topic_interfaces.topic_report.plug(topic_report.topic_report)
        topic_interfaces.refresh_topics.plug(tasks.enqueue_topics_refresh)
        connection_admin_client.plug(connections.BrokerConnections())
        topic_traffic.plug(topic_clients.topic_traffic)
        instances_interfaces.capacity.plug(InstanceCapacity())
        instances_interfaces.is_on_kafka.plug(selectors.is_on_kafka)
        instances_interfaces.exposure.plug(selectors.is_exposed)
        interfaces.group_admin_client.plug(groups.KafkaGroupAdminClient())
        interfaces.transaction_admin_client.plug(transactions.KafkaTransactionAdminClient())
        instances_interfaces.reconcile.plug(tasks.enqueue_reconciliation)
        instances_interfaces.stream_samples.plug(tasks.enqueue_samples)
        instances_interfaces.push_limit.plug(tasks.enqueue_push)
        instances_interfaces.publish_oauth.plug(tasks.enqueue_oauth_publication)
        quota_interfaces.client_quotas.plug(client_quotas.KafkaQuotaAdminClient())
        user_admin_client.plug(users.KafkaUserAdminClient())
        acl_admin_client.plug(acls.KafkaAclAdminClient())
        message_admin_client.plug(messages.KafkaMessageAdminClient())
        record_log.plug(topic_records.TopicRecords)
