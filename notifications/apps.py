"""Django application of notifications: it implements interfaces that `instances` declares."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class NotificationsConfig(AppConfig):
    name = "notifications"
    verbose_name = _("Notifications")

    def ready(self) -> None:
        from instances import interfaces
        from notifications import alerting, limits
        from notifications.alerts.firing_alerts import firing_alerts

        limits.publish()
        interfaces.firing_alerts.plug(firing_alerts)
        interfaces.notify_conditions.plug(alerting.notify_conditions)
