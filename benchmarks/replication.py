"""CPU time of three brokers for records that all three have stored before they are acknowledged (RF 3, acks=all).

  python -m benchmarks --only replication [--replicated-loads b,a,c,latency] [--gb 0.5]
                       [--peer HOST:PORT --peer-pids 1,2,3]

The loads are those of `benchmarks.load`; each figure includes the leader, both followers, and the replication between
them. A peer's loads run in turn with ours, after one round that warms it up, and each load ends in a ratio line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import load
from benchmarks.product import Product, bootstrap_of

REPLICAS = 3
LOADS = "b,a,c,latency"
# Far above the throughput of the machine: the limit must not affect the figures.
BANDWIDTH_MB_S = 1_800


def _bench(bootstrap: str, pids: list[int], gb: float) -> load.Bench:
    return load.Bench(
        conf={"bootstrap.servers": bootstrap},
        server=load.Server(pids),
        gb=gb,
        acks="all",
        replication_factor=REPLICAS,
    )


def measure(
    product: Product, *, gb: float, names: list[str], rounds: int, peer: str | None = None, peer_pids: list[int]
) -> Iterator[dict[str, Any]]:
    """Yields one line per target and load, and with a peer the ratio of our cost to the peer's.

    `peer_pids` are the processes of all brokers of the peer.
    """
    pids = product.broker_pids()
    if len(pids) < REPLICAS:
        raise SystemExit(f"{REPLICAS} replicas take as many brokers, not {len(pids)}")
    instance = product.wait_running(
        product.create_instance(name="replicated", bandwidth_mb_s=BANDWIDTH_MB_S, storage_gb=100)
    )
    benches = {"penstock": _bench(bootstrap_of(instance), pids, gb)}
    if peer:
        benches["peer"] = _bench(peer, peer_pids, gb)
        load.interleaved({"peer": benches["peer"]}, names, 1)
    runs_by_target = load.interleaved(benches, names, rounds)
    for name in names:
        summaries = {target: load.summary(name, runs[name]) for target, runs in runs_by_target.items()}
        for target, figures in summaries.items():
            yield {"target": target, "replicas": REPLICAS, "acks": "all", **figures}
        if peer:
            key = load.cost_key(name)
            ratio = summaries["penstock"][key] / summaries["peer"][key]
            yield {"load": name, "replicas": REPLICAS, "ratio_to_peer": round(ratio, 2)}
    yield {f"{target}_rss_mb": bench.server.rss_mb() for target, bench in benches.items()}
