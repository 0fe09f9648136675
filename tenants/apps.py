"""Django application of tenants."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TenantsConfig(AppConfig):
    name = "tenants"
    verbose_name = _("Tenants")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants import (
            breached_passwords,  # noqa: F401  its check registers itself
            password_changes,
            sign_in_events,
        )
        from tenants.api import schema, schema_components  # noqa: F401  drf-spectacular finds its extensions by import
        from tenants.second_factor import events

        for module in (password_changes, sign_in_events, events):
            module.connect()
