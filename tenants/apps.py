"""The tenants app in Django."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TenantsConfig(AppConfig):
    name = "tenants"
    verbose_name = _("Tenants")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants.api import schema, schema_components  # noqa: F401  drf-spectacular finds its extensions by import
        from tenants.password_changes import connect

        connect()
