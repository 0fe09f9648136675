"""Explanations of a placement: why an instance waits (for its tenant), and the fit of each cluster (for operators)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from brokers.choices import ClusterKind
from brokers.models import Cluster
from brokers.placement import placement
from brokers.placement.capacity import size_of
from brokers.placement.placement import ClusterHeadroom, Fit
from instances.models import Instance

FORMING = "A cluster of its own is being formed."
STARTS_BY_ITSELF = "It starts by itself when there is room; nothing is charged until then."
REASONS_KEPT_MAX = 20
FIT_TEXTS: dict[Fit, str] = {
    Fit.CHOSEN: "chosen",
    Fit.FITS: "fits, another one was preferred",
    Fit.NO_BROKER: "no broker takes instances",
    Fit.SILENT: "no broker answers",
    Fit.PARTITIONS: "too few partitions left",
    Fit.BANDWIDTH: "too little bandwidth left",
    Fit.STORAGE: "too little storage left",
    Fit.SAME_BROKERS: "bandwidth and storage are not left on the same brokers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingCapacity:
    """The reason why no cluster takes an instance; `data` is the same in machine-readable form."""

    detail: str
    missing: tuple[str, ...]
    data: dict[str, Any] = field(default_factory=dict)


def missing_capacity(instance: Instance, headrooms: Sequence[ClusterHeadroom]) -> MissingCapacity:
    """Returns the missing capacity, and the largest size that would fit."""
    size = size_of(instance)
    missing_kinds = placement.missing_kinds_of(headrooms, **size)
    headrooms_with_partitions = [
        headroom
        for headroom in headrooms
        if headroom.free_partitions is None or headroom.free_partitions >= instance.partitions_max
    ]
    mb_s = placement.largest_bandwidth_mb_s(headrooms_with_partitions, storage_gb=instance.storage_gb)
    gb = placement.largest_storage_gb(headrooms_with_partitions, bandwidth_mb_s=instance.bandwidth_mb_s)
    kind, requested = instance.cluster_type, f"{instance.bandwidth_mb_s:,} MB/s and {instance.storage_gb:,} GB"
    sentences: dict[tuple[str, ...], str] = {
        ("cluster",): "No dedicated cluster is free."
        if kind == ClusterKind.DEDICATED
        else "No cluster takes instances.",
        ("broker",): f"No broker of a {kind} cluster takes instances.",
        ("partitions",): f"No {kind} cluster has {instance.partitions_max:,} partitions left.",
        ("bandwidth",): f"No {kind} cluster has {instance.bandwidth_mb_s:,} MB/s free; with this storage {mb_s:,} fit.",
        ("storage",): f"No {kind} cluster has {instance.storage_gb:,} GB free; with this bandwidth {gb:,} fit.",
        ("both",): f"No {kind} cluster has {requested} free on the same brokers.",
    }
    message = sentences.get(missing_kinds, f"No {kind} cluster has {requested} free.")
    return MissingCapacity(
        detail=f"{message} {STARTS_BY_ITSELF}",
        missing=missing_kinds,
        data={
            "outcome": "waits", "missing": list(missing_kinds), "largest_bandwidth_mb_s": mb_s,
            "largest_storage_gb": gb,
        },
    )  # fmt: skip


def missing_ports(host: str) -> MissingCapacity:
    """Returns the reason for an instance that waits because a host of the chosen brokers has no free port."""
    data = {"outcome": "waits", "missing": ["ports"]}
    return MissingCapacity(detail=f"No port is left: {host}. {STARTS_BY_ITSELF}", missing=("ports",), data=data)


def cluster_reasons(
    clusters: Sequence[Cluster], headrooms: Sequence[ClusterHeadroom], instance: Instance
) -> list[dict[str, Any]]:
    """Returns the fit of each cluster as it is stored, the chosen cluster first."""
    names = {cluster.pk: cluster.name for cluster in clusters}
    return [
        {
            "cluster_id": fit.cluster_id,
            "cluster": names[fit.cluster_id],
            "fit": fit.fit.value,
            "detail": FIT_TEXTS[fit.fit],
            "own_instances": fit.own_instances,
            "left_bandwidth_mb_s": fit.left_bandwidth_mb_s,
            "left_storage_gb": fit.left_storage_gb,
        }
        for fit in placement.cluster_fits(headrooms, **size_of(instance))[:REASONS_KEPT_MAX]
    ]
