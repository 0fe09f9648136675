"""Django application of billing: it implements interfaces that `instances` and `brokers` declare.

Dependencies between apps point in one direction only.
"""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = _("Billing")

    def ready(self) -> None:
        from billing.notices import account_notices
        from billing.reporting import usage_problems
        from billing.reporting.operator_action_items import billing_action_items
        from billing.selectors import next_usage_offsets, plan_terms
        from billing.services import reset_usage_offset
        from brokers.monitoring import interfaces as monitoring_interfaces
        from brokers.operations import interfaces as operation_interfaces
        from brokers.rebalancing import interfaces
        from instances import interfaces as instances_interfaces

        instances_interfaces.plan_catalogue.plug(plan_terms)
        instances_interfaces.account_notices.plug(account_notices)
        monitoring_interfaces.money_needs.plug(billing_action_items)
        interfaces.usage_begins_anew.plug(reset_usage_offset)
        operation_interfaces.next_usage_offsets.plug(next_usage_offsets)
        monitoring_interfaces.usage_needs.plug(usage_problems.problem_action_items)
