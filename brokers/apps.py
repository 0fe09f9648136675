"""Brokers' place in Django: it plugs the data plane, observation, capacity and the reconciler into the ports below."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BrokersConfig(AppConfig):
    name = "brokers"
    verbose_name = _("Brokers")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from brokers import tasks
        from brokers.dataplane import client_quotas, groups, topics, transactions
        from brokers.monitoring import observe
        from brokers.placement import capacity
        from instances import group_ports, ports
        from quotas import interfaces as quota_ports

        ports.data_plane.plug(topics.TopicAdminClient())
        ports.observation.plug(observe.Observed())
        ports.capacity.plug(capacity.Room())
        group_ports.group_admin_client.plug(groups.Groups())
        group_ports.transaction_admin_client.plug(transactions.Transactions())
        ports.reconcile.plug(tasks.ask_to_reconcile)
        quota_ports.client_quotas.plug(client_quotas.QuotaAdminClient())
