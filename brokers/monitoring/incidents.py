"""Which instances, and so which tenants, an incident hits: a broker that does not answer, and partitions that lack
something. Out of rows, and of what the beat task was told last of partitions.
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

# States of partitions that hit their owners, as brokers call them.
STATES = ("offline", "under_min_isr", "under_replicated")


class Incident(NamedTuple):
    """`of` is the id of a broker that does not answer (without a state), or of a cluster with partitions in a state."""

    of: str
    state: str = ""


class Hit(NamedTuple):
    """An instance by its tenant's name and its own."""

    tenant: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """The first by name, and how many there are; `is_more`: of so many partitions that not all were looked at."""

    hits: tuple[Hit, ...]
    instances: int
    tenants: int
    is_more: bool = False


def described(affected: Affected) -> str:
    """`Instances it hits: 3, of tenants: 2. Acme (billing, orders); Beta (logs).`, and how many are not named. Pure."""
    if not affected.instances:
        return _("It hits no instance.")
    by_tenant: dict[str, list[str]] = {}
    for hit in affected.hits:
        by_tenant.setdefault(hit.tenant, []).append(hit.instance)
    names = "; ".join(f"{tenant} ({', '.join(instances)})" for tenant, instances in by_tenant.items())
    text = _("Instances it hits: %(instances)s, of tenants: %(tenants)s. %(names)s") % {
        "instances": f"{affected.instances:,}", "tenants": f"{affected.tenants:,}", "names": names,
    }  # fmt: skip
    more = affected.instances - len(affected.hits)
    if more > 0:
        text = _("%(names)s and %(n)s more") % {"names": text, "n": f"{more:,}"}
    return _("%(hits)s. Not all partitions were looked at.") % {"hits": text} if affected.is_more else f"{text}."


def first_hits(rows: Iterable[tuple[str, str, str, str]], ids: Iterable[str], *, is_more: bool = False) -> Affected:
    """Of rows `(instance id, its name, tenant id, its name)` those with one of the ids. Pure."""
    wanted = set(ids)
    own = [row for row in rows if row[0] in wanted]
    hits = sorted((tenant, name, instance_id) for instance_id, name, _tenant_id, tenant in own)
    return Affected(
        hits=tuple(Hit(tenant, name) for tenant, name, _id in hits[:AFFECTED_NAMED_MAX]),
        instances=len(own),
        tenants=len({tenant_id for _id, _name, tenant_id, _tenant in own}),
        is_more=is_more,
    )


# --- partitions -------------------------------------------------------------------------------------------------------


def keep(cluster: Cluster, counts: Mapping[str, int]) -> None:
    """Ask which instances own partitions in each state that some are in, and keep the ids for pages that ask nobody."""
    owners = {state: _owners(cluster, state) for state in STATES if counts.get(state)}
    # Where no broker answered it is not known whom a state hits, which is not the same as nobody.
    owners = {state: (ids, is_more) for state, (ids, is_more) in owners.items() if ids or not is_more}
    if owners:
        shared_cache.set(_key(cluster.pk), owners, KEPT_IMAGE_S)
    else:
        shared_cache.delete(_key(cluster.pk))


def _owners(cluster: Cluster, state: str) -> tuple[tuple[str, ...], bool]:
    """Ids of instances, and whether there are more partitions than were looked at."""
    owners: set[str] = set()
    after = ""
    for _page in range(LEADERLESS_LISTED_MAX // LEADERLESS_PAGE):
        try:
            lines, after = cluster_overview.partition_page(cluster, state=state, after=after, limit=LEADERLESS_PAGE)
        except Unavailable:
            return tuple(sorted(owners)[:AFFECTED_INSTANCES_KEPT_MAX]), True
        owners |= {line["instance_id"] for line in lines if line["instance_id"]}
        if not after:
            break
    is_more = bool(after) or len(owners) > AFFECTED_INSTANCES_KEPT_MAX
    return tuple(sorted(owners)[:AFFECTED_INSTANCES_KEPT_MAX]), is_more


def _kept(cluster_ids: Iterable[str]) -> dict[Incident, tuple[tuple[str, ...], bool]]:
    keys = {_key(cluster_id): cluster_id for cluster_id in cluster_ids}
    return {
        Incident(keys[key], state): (tuple(ids), is_more)
        for key, owners in shared_cache.get_many(list(keys)).items()
        for state, (ids, is_more) in owners.items()
    }


def _key(cluster_id: str) -> str:
    return f"observe:{cluster_id}:affected"


# --- what pages show --------------------------------------------------------------------------------------------------


def affected_by(clusters: Sequence[Cluster], silent: Sequence[Broker]) -> dict[Incident, Affected]:
    """Of every incident; three queries at most, however many there are."""
    return {**_of_partitions(clusters), **_of_brokers(silent)}


def _of_partitions(clusters: Sequence[Cluster]) -> dict[Incident, Affected]:
    kept = _kept(cluster.pk for cluster in clusters)
    ids = {instance_id for own, _is_more in kept.values() for instance_id in own}
    if not ids:
        return {}
    rows = list(Instance.objects.filter(pk__in=ids).order_by().values_list("pk", "name", "tenant_id", "tenant__name"))
    return {incident: first_hits(rows, own, is_more=is_more) for incident, (own, is_more) in kept.items()}


def _of_brokers(brokers: Sequence[Broker]) -> dict[Incident, Affected]:
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
    by_name = Window(
        DenseRank(), partition_by=[F("port_leases__broker_id")], order_by=[F("tenant__name"), F("name"), F("pk")]
    )
    rows = served.annotate(rank=by_name).filter(rank__lte=AFFECTED_NAMED_MAX)
    hits: dict[str, set[tuple[str, str, str]]] = {}
    for broker_id, tenant, name, pk in rows.values_list("port_leases__broker_id", "tenant__name", "name", "pk"):
        hits.setdefault(broker_id, set()).add((tenant, name, pk))
    return {
        Incident(broker.pk): Affected(
            hits=tuple(Hit(tenant, name) for tenant, name, _pk in sorted(hits.get(broker.pk, ()))),
            instances=counts.get(broker.pk, (0, 0))[0],
            tenants=counts.get(broker.pk, (0, 0))[1],
        )
        for broker in brokers
    }


def _reachable() -> QuerySet[Instance]:
    return Instance.objects.filter(phase__in=[phase.value for phase in REACHABLE]).order_by()


def affected_instances(cluster: Cluster, *, broker: Broker | None, state: str, words: str = "") -> QuerySet[Instance]:
    """All that one incident hits, by the names of tenant and instance: those a broker serves, or the kept owners of
    partitions in a state.
    """
    if broker is not None:
        found = _reachable().filter(pk__in=broker.port_leases.filter(is_leaving=False).order_by().values("instance_id"))
    else:
        ids, _is_more = _kept([cluster.pk]).get(Incident(cluster.pk, state), ((), False))
        found = Instance.objects.filter(pk__in=ids)
    if words:
        found = found.filter(Q(name__icontains=words) | Q(tenant__name__icontains=words) | Q(pk__icontains=words))
    return found.select_related("tenant").order_by("tenant__name", "name", "pk")
