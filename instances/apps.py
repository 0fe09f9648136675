"""Django configuration of the app: it registers limits, and plugs the interfaces of `quotas` and `tenants`."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class InstancesConfig(AppConfig):
    name = "instances"
    verbose_name = _("Instances")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from instances import access, limits
        from instances.lifecycle.effects import effects_on_tenant
        from instances.services import tenant_suspension
        from quotas import interfaces as quota_interfaces
        from tenants import interfaces as tenant_interfaces
        from tenants.suspending import add_effects

        limits.publish()
        add_effects(effects_on_tenant)
        quota_interfaces.instance_access.plug(access.instance)
        quota_interfaces.require_reachable.plug(access.require_reachable)
        tenant_interfaces.page_instance.plug(access.instance)
        tenant_interfaces.tenant_instances.plug(tenant_suspension.InstancesOfTenant())
