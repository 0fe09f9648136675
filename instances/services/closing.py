"""Closing an open instance, so that users do what access rules allow and nothing else."""

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
    """Closes an instance whose clients go on: everybody may produce and consume by rules, which are returned.

    Kinds of resources that have rules already get none: one for everybody would open what those rules close. The
    operation is None where the instance is closed. The rules come first, so that no client is refused in between, and
    outside the lock of the row, as brokers may take their time; called again after a failure it goes on from there.
    Raises `Conflict`, `Unavailable` and `QuotaExceeded`.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    if not selectors.allows_everyone(instance):
        return None, []
    ruled = {rule.resource_type for rule in selectors.acl_list(instance)}
    wanted = [rule for rule in preset_rules(Preset.PRODUCE_CONSUME, EVERYBODY) if rule.resource_type not in ruled]
    made = create_acls(acting=acting, instance=instance, rules=wanted) if wanted else []
    with transaction.atomic():
        locked = fetch_instance(acting, instance.pk, lock=True)
        operation = configure_instance(acting=acting, instance=locked, settings={"allow_everyone_if_no_acl": False})
    return operation, made
