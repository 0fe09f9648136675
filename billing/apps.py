"""Billing's place in Django: it plugs the plan catalogue into the port that `instances` offers (apps lean one way)."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = _("Billing")

    def ready(self) -> None:
        from billing.selectors import plan_terms
        from instances import ports

        ports.plan_catalogue.plug(plan_terms)
