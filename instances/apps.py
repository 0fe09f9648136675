"""Instances in Django: they follow their tenants, and plug the admin client to an instance into the ports of
`quotas`.
"""

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
        from quotas import interfaces as quota_ports
        from tenants.signals import tenant_resumed, tenant_suspended
        from tenants.suspending import add_effects

        limits.publish()
        add_effects(effects_on_tenant)
        quota_ports.instance_access.plug(access.instance)
        quota_ports.require_reachable.plug(access.require_reachable)
        tenant_suspended.connect(tenant_suspension.suspend_with_tenant, dispatch_uid="instances")
        tenant_resumed.connect(tenant_suspension.resume_with_tenant, dispatch_uid="instances")
