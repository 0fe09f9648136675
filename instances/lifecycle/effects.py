"""Effects of a suspension on instances and their current clients, shown to the operator before it."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext as _

from instances import access, interfaces
from instances.lifecycle.phases import Phase, may_transition
from instances.limits import TRAFFIC_LATEST_MS
from instances.models import Instance
from tenants.formatting import UNKNOWN, rate
from tenants.models import Tenant
from tenants.suspending import Effect

# Number of instances whose traffic is queried; for the others only the change is shown.
EFFECTS_MEASURED_MAX = 20


def effects_on_tenant(tenant: Tenant) -> list[Effect]:
    """Returns the effects on every instance of a tenant."""
    return effects_of(access.instances_of(tenant).order_by("name", "pk"))


def effects_of(instances: Iterable[Instance]) -> list[Effect]:
    """Returns one effect per instance."""
    return [
        Effect(
            name=instance.name,
            hint=instance.pk,
            change=_change(instance),
            now=_current_traffic(instance) if position < EFFECTS_MEASURED_MAX else "",
        )
        for position, instance in enumerate(instances)
    ]


def _change(instance: Instance) -> str:
    if instance.is_suspended:
        return _("Suspended already: it stays as it is.")
    if instance.current_phase in (Phase.REQUESTED, Phase.PROVISIONING):
        return _("Being made: suspended as soon as it runs.")
    if not may_transition(instance.current_phase, Phase.SUSPENDED) or instance.is_deleted:
        return _("Nothing: it does not run.")
    return _("Produce is refused, consume goes on.")


def _current_traffic(instance: Instance) -> str:
    """Returns the current traffic of its clients as text; a dash if no broker answers, empty if it would not change."""
    if not may_transition(instance.current_phase, Phase.SUSPENDED) or instance.is_suspended:
        return ""
    traffic = interfaces.observation.implementation.traffic(instance.pk, -TRAFFIC_LATEST_MS)
    if not traffic.now_ms:
        return UNKNOWN
    produced = sum(flow[0] for flow in traffic.by_broker.values())
    consumed = sum(flow[1] for flow in traffic.by_broker.values())
    if not produced and not consumed:
        return _("no traffic")
    return _("produce %(produce)s, consume %(consume)s") % {"produce": rate(produced), "consume": rate(consumed)}
