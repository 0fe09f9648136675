"""Closing of an open instance, after which users may do only what access rules allow."""

from __future__ import annotations

from django.db import transaction

from instances.access import instance as fetch_instance
from instances.access import require_changeable
from instances.acls import selectors
from instances.acls.interfaces import AclRule
from instances.acls.presets import EVERYBODY, Preset, preset_rules
from instances.models import Instance, Operation
from instances.services.acls import create_acls
from instances.services.changing import configure_instance
from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope


def close_instance(*, acting: Actor, instance: Instance) -> tuple[Operation | None, list[AclRule]]:
    """Closes an open instance without interrupting its clients: creates rules by which every user may produce and
    consume. Returns the operation and the created rules.

    Resource types that have rules already get no new ones: a rule for every user would give access to resources that
    the existing rules close. The operation is None if the instance is closed already. The rules are created first, so
    that no client is refused in between, and without a lock on the row, because brokers may be slow. A call after a
    failure does the other steps.

    Raises `Conflict`, `Unavailable` and `QuotaExceeded`.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    if not selectors.allows_everyone(instance):
        return None, []
    ruled = {rule.resource_type for rule in selectors.acl_list(instance)}
    missing = [rule for rule in preset_rules(Preset.PRODUCE_CONSUME, EVERYBODY) if rule.resource_type not in ruled]
    created = create_acls(acting=acting, instance=instance, rules=missing) if missing else []
    with transaction.atomic():
        locked = fetch_instance(acting, instance.pk, lock=True)
        operation = configure_instance(acting=acting, instance=locked, settings={"allow_everyone_if_no_acl": False})
    return operation, created
