"""Rows of a large fleet without processes, written in bulk: hosts in three zones, clusters of three brokers, instances.

Figures that brokers and agents report are as large as in a fleet that runs, and fresh.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.urls import reverse
from django.utils import timezone

from brokers.choices import ProcessState, RebalanceKind, RebalanceState, RestartState
from brokers.models import (
    Broker,
    Cluster,
    FleetOperation,
    Host,
    PartitionReassignment,
    Placement,
    PortLease,
    Rebalance,
    RollingRestart,
)
from brokers.monitoring import cluster_overview, observe
from instances.lifecycle.phases import Phase
from instances.models import Instance, Operation, Route
from tenants.models import Tenant

ZONES: Final = ("east", "middle", "west")
BROKERS_PER_CLUSTER: Final = 3
MOVES_PER_REBALANCE: Final = 20
REASONS: Final = 20
STEPS: Final = ("placed", "ports", "published", "confirmed", "probed")
CACHED_S: Final = 600
PORT_FIRST: Final = 20_000
SIZE: Final = {"plan": "brook", "bandwidth_mb_s": 1, "storage_gb": 2}


class LargeFleet(NamedTuple):
    """The rows, for addresses of pages."""

    clusters: Sequence[Cluster]
    hosts: Sequence[Host]
    brokers: Sequence[Broker]
    instances: Sequence[Instance]
    rebalances: Sequence[Rebalance]


def make_large_fleet(tenants: Sequence[Tenant], *, clusters: int, instances: int, name: str = "large") -> LargeFleet:
    """Creates the rows: three hosts for each cluster, with a broker on each, and instances on all brokers of theirs.
    Names begin with `name`.
    """
    now = timezone.now()
    hosts = Host.objects.bulk_create(_host(name, number, now) for number in range(clusters * BROKERS_PER_CLUSTER))
    cluster_rows = Cluster.objects.bulk_create(Cluster(name=f"{name}-{number:03}") for number in range(clusters))
    brokers = Broker.objects.bulk_create(
        _broker(cluster_rows[number // BROKERS_PER_CLUSTER], host, number, now) for number, host in enumerate(hosts)
    )
    instance_rows = Instance.objects.bulk_create(_instance(tenants[n % len(tenants)], n, now) for n in range(instances))
    routes = Route.objects.bulk_create(
        Route(instance=row, name="open", security="plaintext", endpoints=row.endpoints) for row in instance_rows
    )
    cluster_of_instances = [cluster_rows[number % clusters] for number in range(instances)]
    Placement.objects.bulk_create(
        Placement(instance=row, cluster=home, bandwidth_mb_s=1, storage_gb=2, reasons=_reasons(cluster_rows))
        for row, home in zip(instance_rows, cluster_of_instances, strict=True)
    )
    PortLease.objects.bulk_create(_leases(instance_rows, routes, brokers, clusters))
    Operation.objects.bulk_create(
        Operation(
            instance=row, tenant=row.tenant, type="instance.create", state="succeeded", generation=1,
            is_suspended=False, asked_by="person@example.com", finished_at=now, steps=_steps(STEPS), **SIZE,
        )
        for row in instance_rows
    )  # fmt: skip
    rebalances = _create_operations(cluster_rows, now)
    for cluster in cluster_rows:
        _cache_reports(cluster, [broker for broker in brokers if broker.cluster_id == cluster.pk], now)
    return LargeFleet(cluster_rows, hosts, brokers, instance_rows, rebalances)


def panel_addresses(fleet: LargeFleet) -> Iterator[str]:
    """Yields the pages of the operator panel that list the fleet or show a part of it, and query no broker."""
    yield reverse("admin:index")
    for name in (
        "brokers_cluster", "brokers_host", "brokers_broker", "brokers_placement", "brokers_portlease",
        "brokers_rebalance", "brokers_rollingrestart", "brokers_fleetoperation", "instances_instance",
        "instances_operation",
    ):  # fmt: skip
        yield reverse(f"admin:{name}_changelist")
    yield reverse("admin:brokers_cluster_add")
    yield reverse("admin:brokers_cluster_map", args=[fleet.clusters[0].pk])
    yield reverse("admin:brokers_broker_add_to", args=[fleet.clusters[0].pk])
    yield reverse("admin:brokers_host_change", args=[fleet.hosts[0].pk])
    yield reverse("admin:brokers_broker_change", args=[fleet.brokers[0].pk])
    yield reverse("admin:brokers_rebalance_change", args=[fleet.rebalances[0].pk])
    yield reverse("admin:instances_instance_change", args=[fleet.instances[0].pk])
    yield f"{reverse('admin:instances_instance_changelist')}?q={fleet.instances[-1].name}"


def rest_addresses(fleet: LargeFleet) -> Iterator[str]:
    """Yields operators' lists of the fleet, and one resource of each kind, below the root of the API."""
    for name in ("clusters", "hosts", "brokers", "placements", "operations", "rebalances", "rolling_restarts"):
        yield f"/operator/{name}"
    yield f"/operator/clusters/{fleet.clusters[0].pk}"
    yield f"/operator/hosts/{fleet.hosts[0].pk}"
    yield f"/operator/brokers/{fleet.brokers[0].pk}"
    yield f"/operator/rebalances/{fleet.rebalances[0].pk}"


def _host(name: str, number: int, now: datetime) -> Host:
    address = f"10.{number // 250}.{number % 250}.1"
    return Host(
        name=f"{name}-{number:03}", zone=ZONES[number % len(ZONES)], advertised_host=address, bind_host=address,
        internal_host=address, port_first=PORT_FIRST, port_last=PORT_FIRST + 9_999, agent_seen_at=now,
        agent_version="0.1.0", checked_at=now,
        checks=[{"name": "version", "state": "passed", "data": {"version": "0.1.0", "behind": 0, "ahead": 0}}],
    )  # fmt: skip


def _broker(cluster: Cluster, host: Host, number: int, now: datetime) -> Broker:
    path = f"/var/lib/penstock/{number}"
    observed: dict[str, Any] = {
        "version": "0.1.0", "epoch": number, "leaders": 100, "replicas": 300, "connections": 200, "log_bytes": 10**9,
        "is_controller": number % BROKERS_PER_CLUSTER == 0, "compiled": True, "transactions_overdue": 0,
        "connections_by_instance": {f"ins-{n:08}": 2 for n in range(100)},
        "log_directories": [
            {"path": path, "offline_reason": None, "total_bytes": 10**12, "usable_bytes": 9 * 10**11, "partitions": 300}
        ],
    }  # fmt: skip
    return Broker(
        cluster=cluster, host=host, number=number % BROKERS_PER_CLUSTER + 1, internal_port=19_001, admin_port=19_101,
        data_dirs=[path], process_state=ProcessState.RUNNING, process_since=now, observed_at=now, observed=observed,
    )  # fmt: skip


def _instance(tenant: Tenant, number: int, now: datetime) -> Instance:
    endpoints = {str(broker): f"10.0.0.{broker}:{PORT_FIRST + number % 9_999}" for broker in (1, 2, 3)}
    return Instance(
        tenant=tenant, name=f"instance-{number:05}", partitions_max=50, phase=Phase.RUNNING.value,
        observed_generation=1, endpoints=endpoints, first_running_at=now, **SIZE,
    )  # fmt: skip


def _reasons(clusters: Sequence[Cluster]) -> list[dict[str, Any]]:
    return [
        {
            "cluster_id": cluster.pk, "cluster": cluster.name, "fit": "fits", "detail": "It has room.",
            "own_instances": 0, "left_bandwidth_mb_s": 100, "left_storage_gb": 100,
        }
        for cluster in clusters[:REASONS]
    ]  # fmt: skip


def _leases(
    instances: Sequence[Instance], routes: Sequence[Route], brokers: Sequence[Broker], clusters: int
) -> Iterator[PortLease]:
    for number, (instance, route) in enumerate(zip(instances, routes, strict=True)):
        first = number % clusters * BROKERS_PER_CLUSTER
        for broker in brokers[first : first + BROKERS_PER_CLUSTER]:
            port = PORT_FIRST + number // clusters
            yield PortLease(instance=instance, broker=broker, route=route, host=broker.host, port=port)


def _steps(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "state": "done", "at_ms": 100 * at, "fact": "", "data": {}} for at, name in enumerate(names)]


def _create_operations(clusters: Sequence[Cluster], now: datetime) -> Sequence[Rebalance]:
    """Creates what was done to the clusters: a rebalance, a rolling restart and an operation of each."""
    started = now - timedelta(hours=1)
    rebalances = Rebalance.objects.bulk_create(
        Rebalance(
            cluster=cluster, kind=RebalanceKind.BALANCE, state=RebalanceState.DONE, planned_by="ops@example.com",
            started_at=started, ended_at=now,
        )
        for cluster in clusters
    )  # fmt: skip
    PartitionReassignment.objects.bulk_create(
        PartitionReassignment(
            rebalance=rebalance, position=number, topic=f"ins-00000000.topic-{number}", partition=0, before=[1, 2],
            target=[2, 3], state="done", size_bytes=10**6, copied_bytes=10**6, copies=1,
        )
        for rebalance in rebalances
        for number in range(MOVES_PER_REBALANCE)
    )  # fmt: skip
    RollingRestart.objects.bulk_create(
        RollingRestart(cluster=cluster, state=RestartState.DONE, numbers=[1, 2, 3], done=3, asked_by="ops@example.com")
        for cluster in clusters
    )
    FleetOperation.objects.bulk_create(
        FleetOperation(
            cluster=cluster, type="form", state="succeeded", asked_by="ops@example.com", finished_at=now,
            steps=_steps(("brokers", "controller")),
        )
        for cluster in clusters
    )  # fmt: skip
    return rebalances


def _cache_reports(cluster: Cluster, brokers: Sequence[Broker], now: datetime) -> None:
    """Caches what the brokers would answer, for the overview and for the cluster's map."""
    share = {"live": True, "stopping": False, "leaders": 100, "preferred": 100, "replicas": 300, "out_of_sync": 0}
    body: dict[str, Any] = dict.fromkeys(cluster_overview.COUNTS, 0) | {
        "broker_id": 1, "ready": True, "controller_id": 1, "controller_epoch": 1,
        "brokers": [{"id": broker.number, "version": "0.1.0", **share} for broker in brokers],
    }  # fmt: skip
    answers = observe.BrokerAnswers(bodies={1: body}, silent=())
    cluster_overview.shared_cache.set(cluster_overview._image_key(cluster), (now, answers), CACHED_S)
    cluster_overview.shared_cache.set(f"observe:{cluster.pk}:cluster", answers, CACHED_S)
