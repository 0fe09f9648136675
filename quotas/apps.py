"""Django application of quotas."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class QuotasConfig(AppConfig):
    name = "quotas"
    verbose_name = _("Quotas")

    def ready(self) -> None:
        from quotas import limits

        limits.publish()
