"""Instances and tenants affected by an incident: an unresponsive broker, or partitions in a bad state.

They are computed from rows and from the partitions' owners that a periodic task caches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.core.cache import cache as shared_cache
from django.db.models import Count, F, Q, QuerySet, Window
from django.db.models.functions import DenseRank
from django.utils.translation import gettext as _

from brokers.limits import (
    AFFECTED_INSTANCES_KEPT_MAX,
    AFFECTED_NAMED_MAX,
    KEPT_IMAGE_S,
    LEADERLESS_LISTED_MAX,
    LEADERLESS_PAGE,
)
from brokers.models import Broker, Cluster
from brokers.monitoring import cluster_overview
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from tenants.errors import Unavailable

logger = logging.getLogger(__name__)

# States of partitions that affect their owners, as named by brokers.
STATES = ("offline", "under_min_isr", "under_replicated")


class Incident(NamedTuple):
    """Incident at a broker that does not answer (`of` is its id), or at a cluster with partitions in a state."""

    of: str
    state: str = ""


class AffectedInstance(NamedTuple):
    """An affected instance: the name of its tenant, and its own name."""

    tenant: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """Affected instances: the first ones by name, and the numbers of all affected instances and tenants.

    `is_more` is True if there were too many partitions to examine all. `has_internal` is True if internal topics are
    affected, such as the offsets topic, which any instance may need.
    """

    named_instances: tuple[AffectedInstance, ...]
    instances: int
    tenants: int
    is_more: bool = False
    has_internal: bool = False


class Owners(NamedTuple):
    """Owners of partitions in a state, as cached: ids of instances, and two fields of `Affected`."""

    ids: tuple[str, ...]
    is_more: bool
    has_internal: bool


def describe(affected: Affected) -> str:
    """Returns the localized description of the affected instances, with the number of those not named. Pure."""
    sentences = [_instances_text(affected)]
    if affected.has_internal:
        sentences.append(_("The cluster's own topics are among them, which groups and transactions of all need."))
    if affected.is_more:
        sentences.append(_("Not all partitions were looked at."))
    return " ".join(sentences)


def _instances_text(affected: Affected) -> str:
    if not affected.instances:
        return _("It hits no topic of an instance.") if affected.has_internal else _("It hits no instance.")
    by_tenant: dict[str, list[str]] = {}
    for instance in affected.named_instances:
        by_tenant.setdefault(instance.tenant, []).append(instance.instance)
    names = "; ".join(f"{tenant} ({', '.join(instances)})" for tenant, instances in by_tenant.items())
    text = _("Instances it hits: %(instances)s, of tenants: %(tenants)s. %(names)s") % {
        "instances": f"{affected.instances:,}", "tenants": f"{affected.tenants:,}", "names": names,
    }  # fmt: skip
    unnamed = affected.instances - len(affected.named_instances)
    return _("%(names)s and %(n)s more") % {"names": text, "n": f"{unnamed:,}"} + "." if unnamed > 0 else f"{text}."


def affected_of_owners(rows: Iterable[tuple[str, str, str, str]], owners: Owners) -> Affected:
    """Returns the instances of `owners` among rows `(instance id, instance name, tenant id, tenant name)`. Pure."""
    owner_ids = set(owners.ids)
    owner_rows = [row for row in rows if row[0] in owner_ids]
    sorted_names = sorted((tenant, name, instance_id) for instance_id, name, _tenant_id, tenant in owner_rows)
    return Affected(
        named_instances=tuple(
            AffectedInstance(tenant, name) for tenant, name, _id in sorted_names[:AFFECTED_NAMED_MAX]
        ),
        instances=len(owner_rows),
        tenants=len({tenant_id for _id, _name, tenant_id, _tenant in owner_rows}),
        is_more=owners.is_more,
        has_internal=owners.has_internal,
    )


# --- partitions -------------------------------------------------------------------------------------------------------


def cache_owners(cluster: Cluster, counts: Mapping[str, int]) -> None:
    """Queries the owners of partitions in each state, and caches their ids for pages that query no broker."""
    owners = {
        state: state_owners for state in STATES if counts.get(state) and (state_owners := _query_owners(cluster, state))
    }
    if owners:
        shared_cache.set(
            _owners_key(cluster.pk),
            {state: tuple(state_owners) for state, state_owners in owners.items()},
            KEPT_IMAGE_S,
        )
    else:
        shared_cache.delete(_owners_key(cluster.pk))


def _query_owners(cluster: Cluster, state: str) -> Owners | None:
    """Returns the owners of partitions in a state; None if no broker answers."""
    ids: set[str] = set()
    has_internal, after = False, ""
    for _page in range(LEADERLESS_LISTED_MAX // LEADERLESS_PAGE):
        try:
            partitions, after = cluster_overview.partition_page(
                cluster, state=state, after=after, limit=LEADERLESS_PAGE
            )
        except Unavailable:
            return None
        ids |= {partition["instance_id"] for partition in partitions if partition["instance_id"]}
        has_internal = has_internal or any(not partition["instance_id"] for partition in partitions)
        if not after:
            break
    is_more = bool(after) or len(ids) > AFFECTED_INSTANCES_KEPT_MAX
    return Owners(tuple(sorted(ids)[:AFFECTED_INSTANCES_KEPT_MAX]), is_more, has_internal)


def _cached_owners(cluster_ids: Iterable[str]) -> dict[Incident, Owners]:
    keys = {_owners_key(cluster_id): cluster_id for cluster_id in cluster_ids}
    return {
        Incident(keys[key], state): Owners(*fields)
        for key, owners in shared_cache.get_many(list(keys)).items()
        for state, fields in owners.items()
    }


def _owners_key(cluster_id: str) -> str:
    return f"observe:{cluster_id}:affected"


# --- affected instances -----------------------------------------------------------------------------------------------


def affected_by(clusters: Sequence[Cluster], unresponsive: Sequence[Broker]) -> dict[Incident, Affected]:
    """Returns the affected instances of every incident; at most three queries, independent of the number of
    incidents.
    """
    return {**_affected_by_partitions(clusters), **_affected_by_brokers(unresponsive)}


def _affected_by_partitions(clusters: Sequence[Cluster]) -> dict[Incident, Affected]:
    owners_by_incident = _cached_owners(cluster.pk for cluster in clusters)
    ids = {instance_id for owners in owners_by_incident.values() for instance_id in owners.ids}
    instances = Instance.objects.filter(pk__in=ids).order_by().values_list("pk", "name", "tenant_id", "tenant__name")
    rows = list(instances) if ids else []
    return {incident: affected_of_owners(rows, owners) for incident, owners in owners_by_incident.items()}


def _affected_by_brokers(brokers: Sequence[Broker]) -> dict[Incident, Affected]:
    if not brokers:
        return {}
    served = _reachable().filter(
        port_leases__broker__in=[broker.pk for broker in brokers], port_leases__is_leaving=False
    )
    counts = {
        broker_id: (instances, tenants)
        for broker_id, instances, tenants in served.values_list("port_leases__broker_id").annotate(
            instances=Count("pk", distinct=True), tenants=Count("tenant_id", distinct=True)
        )
    }
    rank_by_name = Window(
        DenseRank(), partition_by=[F("port_leases__broker_id")], order_by=[F("tenant__name"), F("name"), F("pk")]
    )
    rows = served.annotate(rank=rank_by_name).filter(rank__lte=AFFECTED_NAMED_MAX)
    names_by_broker: dict[str, set[tuple[str, str, str]]] = {}
    for broker_id, tenant, name, pk in rows.values_list("port_leases__broker_id", "tenant__name", "name", "pk"):
        names_by_broker.setdefault(broker_id, set()).add((tenant, name, pk))
    return {
        Incident(broker.pk): Affected(
            named_instances=tuple(
                AffectedInstance(tenant, name) for tenant, name, _pk in sorted(names_by_broker.get(broker.pk, ()))
            ),
            instances=counts.get(broker.pk, (0, 0))[0],
            tenants=counts.get(broker.pk, (0, 0))[1],
        )
        for broker in brokers
    }


def _reachable() -> QuerySet[Instance]:
    return Instance.objects.filter(phase__in=[phase.value for phase in REACHABLE]).order_by()


def affected_instances(cluster: Cluster, *, broker: Broker | None, state: str, search: str = "") -> QuerySet[Instance]:
    """Returns all instances affected by one incident, by the names of tenant and instance: those served by a broker, or
    the cached owners of partitions in a state.
    """
    if broker is not None:
        instances = _reachable().filter(
            pk__in=broker.port_leases.filter(is_leaving=False).order_by().values("instance_id")
        )
    else:
        owners = _cached_owners([cluster.pk]).get(Incident(cluster.pk, state))
        instances = Instance.objects.filter(pk__in=owners.ids if owners else ())
    if search:
        instances = instances.filter(
            Q(name__icontains=search) | Q(tenant__name__icontains=search) | Q(pk__icontains=search)
        )
    return instances.select_related("tenant").order_by("tenant__name", "name", "pk")
