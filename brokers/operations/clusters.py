"""Services for operators: forming clusters, changing them, and retiring those without instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.translation import gettext_noop

from brokers.choices import ClusterBackend, ClusterKind, ClusterState, FleetOperationType, FleetStep, RestartState
from brokers.dataplane.upstream_probe import ProbedUpstream
from brokers.limits import (
    BROKER_BANDWIDTH_MB_S,
    BROKER_STORAGE_GB,
    BROKERS_PER_CLUSTER_MAX,
    BROKERS_PER_INSTANCE_MIN,
    CLUSTER_CAPACITY_MAX,
    CLUSTER_NAME_CHARS_MAX,
    CLUSTER_PARTITIONS_MAX,
    CLUSTERS_MAX,
    ZONE_CHARS_MAX,
    ZONES_PER_CLUSTER_MAX,
)
from brokers.models import UNDER_WAY, Broker, Cluster, FleetOperation, Host, Placement, PortLease
from brokers.operations import fleet_operations, kafka_clusters, membership
from brokers.operations.host_rules import NAME
from instances.models import Instance
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, FieldError, Invalid, Message
from tenants.models import Tenant

# Fields with limits for all instances of a cluster together (CKA-46), each with the largest value.
CAPS = {
    "max_partitions": CLUSTER_PARTITIONS_MAX,
    "max_bandwidth_mb_s": CLUSTER_CAPACITY_MAX,
    "max_storage_gb": CLUSTER_CAPACITY_MAX,
}
CHANGEABLE = ("name", "accepts_instances", "zones", *CAPS, "brokers_per_instance_min", "tenant_ids")
AUDITED_FIELDS = (
    "name", "kind", "backend", "zones", "brokers_per_instance_min", *CAPS, "accepts_instances", "tenant_ids",
)  # fmt: skip
CLUSTER_TENANTS_MAX = 1_000


@transaction.atomic
def add_cluster(
    *,
    acting: Actor,
    name: str,
    kind: str = ClusterKind.SHARED,
    hosts: Sequence[Host] = (),
    bandwidth_mb_s: int = BROKER_BANDWIDTH_MB_S,
    storage_gb: int = BROKER_STORAGE_GB,
    zones: Sequence[str] = (),
    brokers_per_instance_min: int = BROKERS_PER_INSTANCE_MIN,
    max_partitions: int | None = None,
    max_bandwidth_mb_s: int | None = None,
    max_storage_gb: int | None = None,
    accepts_instances: bool = True,
    tenant_ids: Sequence[str] = (),
    upstream: ProbedUpstream | None = None,
    reserved_for: Instance | None = None,
    dry_run: bool = False,
) -> FleetOperation:
    """Creates a cluster, with one broker for each of `hosts`, and begins to form it (`forming`).

    With an `upstream` its brokers are gateways: one for each upstream broker, on the `hosts` in turn.
    Its tree in ZooKeeper, its internal topics, certificates and flow master are created by its brokers, as for the
    first cluster. Raises `Invalid` for a wrong value, and `Conflict` for a name that is taken, a fleet that is full, or
    a host without capacity.
    """
    access.require(acting, Scope.OPERATOR)
    _require_capacity_of_fleet(hosts)
    fields = {
        "name": name, "zones": list(zones), "brokers_per_instance_min": brokers_per_instance_min,
        "max_partitions": max_partitions, "max_bandwidth_mb_s": max_bandwidth_mb_s, "max_storage_gb": max_storage_gb,
        "tenant_ids": list(tenant_ids),
    }  # fmt: skip
    _require_valid(fields)
    _require_free_name(name)
    cluster = Cluster(
        **fields, kind=kind, accepts_instances=accepts_instances, state=ClusterState.FORMING, reserved_for=reserved_for,
        control_secret_file=str(settings.CONTROL_SECRET_FILE),
        backend=ClusterBackend.PENSTOCK if upstream is None else ClusterBackend.KAFKA,
    )  # fmt: skip
    _insert(cluster)
    after: dict[str, Any] = {"hosts": [host.name for host in hosts]}
    if upstream is not None:
        hosts = kafka_clusters.hosts_of_gateways(upstream, hosts)
        after |= kafka_clusters.audited(kafka_clusters.store(cluster, upstream))
    operation = fleet_operations.begin(acting, cluster, FleetOperationType.FORM)
    audit.record(acting, "cluster.added", cluster, None, audited_fields(cluster) | after)
    brokers = [
        membership.add_broker(
            acting=acting, cluster=cluster, host=host, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb,
            dry_run=dry_run,
        )
        for host in hosts
    ]  # fmt: skip
    if brokers:
        fleet_operations.mark_done(operation, FleetStep.BROKERS_ADDED, brokers_fact(brokers), brokers=len(brokers))
    return operation


def _require_capacity_of_fleet(hosts: Sequence[Host]) -> None:
    """Raises `Conflict` if the fleet has no room for another cluster, or a cluster for a broker on each host."""
    if Cluster.objects.active().count() >= CLUSTERS_MAX:
        raise Conflict(Message(gettext_noop("A fleet has at most %(n)s clusters."), n=CLUSTERS_MAX), code="fleet_full")
    if len(hosts) > BROKERS_PER_CLUSTER_MAX:
        raise Conflict(
            Message(gettext_noop("A cluster has at most %(n)s brokers."), n=BROKERS_PER_CLUSTER_MAX),
            code="cluster_full",
        )


def _insert(cluster: Cluster) -> None:
    """Stores a new cluster. Raises `Conflict` if another one took its name meanwhile."""
    try:
        with transaction.atomic():
            cluster.save(force_insert=True)
    except IntegrityError:
        raise _name_taken() from None


@transaction.atomic
def change_cluster(*, acting: Actor, cluster: Cluster, changes: Mapping[str, Any]) -> Cluster:
    """Changes a cluster's name, its acceptance of instances, or its bounds. Instances that are already placed stay.

    Raises `Conflict` for a name that is taken, and if a broker is outside the new zones (`other_zone`).
    """
    access.require(acting, Scope.OPERATOR)
    row = locked_cluster(cluster)
    changed = {key: value for key, value in changes.items() if key in CHANGEABLE and getattr(row, key) != value}
    if not changed:
        return row
    _require_valid(changed)
    if "name" in changed:
        _require_free_name(changed["name"])
    if changed.get("zones"):
        brokers = Broker.objects.filter(cluster=row, removed_at=None)
        outside = brokers.exclude(host__zone__in=changed["zones"]).select_related("host").first()
        if outside is not None:
            raise Conflict(
                Message(
                    gettext_noop("Broker %(id)s is on host %(host)s, in another zone."),
                    id=outside.number,
                    host=outside.host.name,
                ),
                code="other_zone",
            )
    before = {key: getattr(row, key) for key in changed}
    for key, value in changed.items():
        setattr(row, key, value)
    row.save_changes(list(changed))
    audit.record(acting, "cluster.changed", row, before, changed)
    return row


@transaction.atomic
def retire_cluster(*, acting: Actor, cluster: Cluster, dry_run: bool = False) -> FleetOperation:
    """Begins to retire a cluster without instances (`retiring`). It cannot be undone.

    Raises `Conflict` for a cluster with instances (`has_instances`), or with a rebalance or rolling restart in
    progress.
    """
    access.require(acting, Scope.OPERATOR)
    row = locked_cluster(cluster)
    instances = Placement.objects.filter(cluster=row).count()
    if instances or PortLease.objects.filter(broker__cluster=row).exists():
        raise Conflict(
            Message(
                gettext_noop(
                    "%(n)s instances live on the cluster, deleted ones that can be restored included. Have them purged."
                ),
                n=instances,
            ),
            code="has_instances",
        )
    if row.rebalances.filter(state__in=UNDER_WAY).exists():
        raise Conflict("A rebalance of the cluster is under way.", code="rebalance_in_progress")
    if row.rolling_restarts.filter(state__in=(RestartState.RUNNING, RestartState.PAUSED)).exists():
        raise Conflict("A rolling restart of the cluster is under way.", code="restart_in_progress")
    was_ready = row.state == ClusterState.READY
    open_operation = fleet_operations.open_operation(row)
    if open_operation is not None:
        fleet_operations.fail(open_operation, "superseded", "The cluster is retired.")
    row.state, row.accepts_instances = ClusterState.RETIRING, False
    row.save_changes(["state", "accepts_instances"])
    audit.record(acting, "cluster.retirement_begun", row, None, audited_fields(row))
    return fleet_operations.begin(acting, row, FleetOperationType.RETIRE, was_ready=was_ready)


def locked_cluster(cluster: Cluster) -> Cluster:
    """Returns the locked row of a cluster. Raises `Conflict` (`retired`) for a retiring or retired cluster."""
    row = Cluster.objects.select_for_update().get(pk=cluster.pk)
    if row.state in (ClusterState.RETIRING, ClusterState.RETIRED):
        raise Conflict("The cluster is being retired.", code="retired")
    return row


def audited_fields(cluster: Cluster) -> dict[str, Any]:
    """Returns the fields of a cluster that the audit log stores."""
    return {name: getattr(cluster, name) for name in AUDITED_FIELDS}


def brokers_fact(brokers: Sequence[Broker]) -> str:
    """Returns the fact of a step that names brokers with their hosts."""
    return ", ".join(f"{broker.number} on {broker.host.name}" for broker in brokers)


def _require_valid(values: Mapping[str, Any]) -> None:
    errors: list[FieldError] = []

    def refuse(pointer: str, detail: str, code: str) -> None:
        errors.append(FieldError(pointer=f"/{pointer}", detail=detail, code=code))

    name = values.get("name")
    if name is not None and (not NAME.fullmatch(name) or len(name) > CLUSTER_NAME_CHARS_MAX):
        refuse("name", _name_rule(CLUSTER_NAME_CHARS_MAX), "invalid_name")
    zones = values.get("zones", ())
    if len(zones) > ZONES_PER_CLUSTER_MAX:
        refuse("zones", Message(gettext_noop("At most %(n)s zones."), n=ZONES_PER_CLUSTER_MAX), "too_many")
    for index, zone in enumerate(zones):
        if not NAME.fullmatch(zone) or len(zone) > ZONE_CHARS_MAX:
            refuse(f"zones/{index}", _name_rule(ZONE_CHARS_MAX), "invalid_name")
    _check_tenants(values.get("tenant_ids", ()), refuse)
    for key, maximum in {"brokers_per_instance_min": BROKERS_PER_CLUSTER_MAX, **CAPS}.items():
        value = values.get(key)
        if value is not None and not 1 <= value <= maximum:
            refuse(
                key, Message(gettext_noop("A whole number from 1 to %(most)s."), most=f"{maximum:,}"), "out_of_range"
            )
    if errors:
        raise Invalid(errors[0].detail, errors=errors)


def _check_tenants(tenant_ids: Sequence[str], refuse: Callable[[str, str, str], None]) -> None:
    if len(tenant_ids) > CLUSTER_TENANTS_MAX:
        refuse("tenant_ids", Message(gettext_noop("At most %(n)s tenants."), n=f"{CLUSTER_TENANTS_MAX:,}"), "too_many")
        return
    existing_ids = set(Tenant.objects.filter(pk__in=set(tenant_ids)).values_list("pk", flat=True))
    for index, tenant_id in enumerate(tenant_ids):
        if tenant_id not in existing_ids:
            refuse(f"tenant_ids/{index}", gettext_noop("There is no such tenant."), "not_found")


def _name_rule(chars_max: int) -> str:
    return Message(gettext_noop("Small letters, digits and - in between; at most %(n)s characters."), n=chars_max)


def _require_free_name(name: str) -> None:
    if Cluster.objects.active().filter(name=name).exists():
        raise _name_taken()


def _name_taken() -> Conflict:
    detail = "Another cluster has this name."
    return Conflict(detail, code="name_taken", errors=Invalid.at("/name", detail, code="name_taken").errors)
