"""Which cluster a run of the pipeline reads; light enough for every process that only wants to say so."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a cluster's usage is read: internal bootstrap servers and the cluster's own identity there."""

    cluster_id: str
    bootstrap: str
    username: str
    password: str = field(repr=False)
