"""Instances' place in Django: it plugs the door to an instance into the ports of `quotas`."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class InstancesConfig(AppConfig):
    name = "instances"
    verbose_name = _("Instances")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from instances import access, limits
        from quotas import ports as quota_ports

        limits.publish()
        quota_ports.instance_door.plug(access.instance)
        quota_ports.require_reachable.plug(access.require_reachable)
