"""Starts the product in a scratch directory and prints one JSON line per figure: `make bench`.

  python -m benchmarks [--only sharing,start,loads,replication,neighbours,floods,hot-partition,limit-changes,accuracy,…]
                       [--gb 0.5] [--accuracy quick|patterns|whole]
                       [--peer HOST:PORT --peer-pids 1]

With `--peer` the same loads run against another Kafka in the same sitting, and each load ends in a ratio line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from benchmarks import (
    closing,
    connections,
    console,
    engine_start,
    environment,
    floods_beside,
    hot_partition,
    invoices,
    limit_changes,
    load,
    money_pages,
    neighbours,
    pages,
    provisioning,
    quota_accuracy,
    replication,
    sharing,
)  # fmt: skip
from benchmarks.product import Product, bootstrap_of, running

BENCH_BANDWIDTH_MB_S_PER_BROKER = 600
LOADS = "a,b,d,c,e,latency"
# Simulates the policies of bandwidth sharing; needs no running product.
SIMULATED = "sharing"


def print_figures(figures: dict[str, Any] | str) -> None:
    """Prints a line of figures as JSON, or a table as it is."""
    print(figures if isinstance(figures, str) else json.dumps(figures), flush=True)


def bench_of(bootstrap: str, pids: list[int], gb: float) -> load.Bench:
    return load.Bench(
        conf={"bootstrap.servers": bootstrap}, server=load.Server(pids), gb=gb, acks="1", replication_factor=1
    )


def bench_loads(product: Product, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Runs all loads through a tenant port of an instance without an effective bandwidth limit; a peer's in turn with
    ours.
    """
    bandwidth_mb_s = BENCH_BANDWIDTH_MB_S_PER_BROKER * args.brokers
    instance_id = product.create_instance(name="bench", bandwidth_mb_s=bandwidth_mb_s, storage_gb=100)
    instance = product.wait_running(instance_id)
    benches = {"penstock": bench_of(bootstrap_of(instance), product.broker_pids(), args.gb)}
    if args.peer:
        benches["peer"] = bench_of(args.peer, args.peer_pids, args.gb)
        # The first run of a peer is a warm-up and is not counted.
        load.interleaved({"peer": benches["peer"]}, args.loads.split(","), 1)
    rss_mb = {f"{target}_rss_mb": bench.server.rss_mb() for target, bench in benches.items()}
    yield {"floor_cpu_s_per_gb": load.floor_cpu_s_per_gb(), **rss_mb}
    runs_by_target = load.interleaved(benches, args.loads.split(","), args.rounds)
    for name in args.loads.split(","):
        summaries = {target: load.summary(name, runs[name]) for target, runs in runs_by_target.items()}
        for target, figures in summaries.items():
            yield {"target": target, **figures}
        if args.peer:
            yield ratios(name, summaries["penstock"], summaries["peer"])
    yield {f"{target}_rss_mb": bench.server.rss_mb() for target, bench in benches.items()}


def ratios(name: str, penstock: dict[str, Any], peer: dict[str, Any]) -> dict[str, Any]:
    """Returns the cost of our server divided by the peer's: of the median runs and of the cheapest runs."""
    key = load.cost_key(name)
    least = f"{key}_least"
    ratio_of_median, ratio_of_least = penstock[key] / peer[key], penstock[least] / peer[least]
    return {"load": name, "ratio_to_peer": round(ratio_of_median, 2), "ratio_of_least": round(ratio_of_least, 2)}


def benchmarks_by_name(args: argparse.Namespace) -> dict[str, Callable[[Product], Iterator[dict[str, Any] | str]]]:
    """Returns the benchmarks by their name in `--only`, in the order in which they run."""

    def measure_replication(product: Product) -> Iterator[dict[str, Any] | str]:
        return replication.measure(
            product,
            gb=args.gb,
            names=args.replicated_loads.split(","),
            rounds=args.rounds,
            peer=args.peer,
            peer_pids=args.peer_pids,
        )

    def measure_provisioning(product: Product) -> Iterator[dict[str, Any] | str]:
        yield provisioning.provision(product, args.instances)
        yield provisioning.fill_product(product, args.crowd, existing=args.instances)

    return {
        "start": lambda product: iter([engine_start.measure(product)]),
        "loads": lambda product: bench_loads(product, args),
        "replication": measure_replication,
        "neighbours": lambda product: neighbours.measure(product, args.peer, args.seconds),
        "floods": lambda product: floods_beside.measure(product, args.seconds, args.rounds),
        "hot-partition": lambda product: hot_partition.measure(product, args.brokers),
        "limit-changes": lambda product: limit_changes.measure(product),
        "accuracy": lambda product: quota_accuracy.measure(product, args.peer, args.accuracy, args.brokers),
        "connections": lambda product: iter([connections.measure(product, args.connections)]),
        "provisioning": measure_provisioning,
        "invoices": lambda product: invoices.measure(product, args.tenants),
        "closing": lambda product: closing.measure(product, args.tenants),
        "money-pages": lambda product: money_pages.measure(product, args.tenants),
        "console": lambda product: console.measure(
            product, topics=args.topics, groups=args.groups, audit_rows=args.audit_rows, messages=args.messages
        ),
        "pages": lambda product: iter([pages.measure(product, args.rows)]),
    }


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="which of them, with commas between; otherwise all")
    parser.add_argument("--loads", default=LOADS)
    parser.add_argument("--replicated-loads", default=replication.LOADS, help="loads with three replicas, acks=all")
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=3, help="how often each load is run")
    parser.add_argument("--brokers", type=int, default=3, help="broker processes of the product")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each span beside a neighbour lasts")
    parser.add_argument("--accuracy", choices=sorted(quota_accuracy.SIZES), default="quick", help="how many cells")
    parser.add_argument("--connections", type=int, default=2_000, help="clients kept open on one broker")
    parser.add_argument("--instances", type=int, default=50, help="instances to create one after the other")
    parser.add_argument("--crowd", type=int, default=100, help="instances alive at once")
    parser.add_argument("--rows", type=int, default=10_000, help="instances in the list that is paged through")
    parser.add_argument("--tenants", type=int, default=1_000, help="tenants whose month is invoiced")
    parser.add_argument("--topics", type=int, default=10_000, help="topics of the instance whose pages are read")
    parser.add_argument("--groups", type=int, default=2_000, help="its consumer groups")
    parser.add_argument("--audit-rows", type=int, default=1_000_000, help="rows of its tenant's audit log")
    parser.add_argument("--messages", type=int, default=10_000_000, help="messages of the topic that is read")
    parser.add_argument("--peer", help="bootstrap server of another Kafka")
    parser.add_argument("--peer-pids", type=lambda text: [int(pid) for pid in text.split(",")], default=[])
    return parser.parse_args()


def select(only: str | None, names: Collection[str]) -> set[str]:
    """Returns the names given with `--only`, or all known names.

    Raises:
        SystemExit: a name is not known.
    """
    selected = set(only.split(",")) if only else set(names)
    if unknown := selected - set(names):
        raise SystemExit(f"--only knows {', '.join(names)}; not {', '.join(sorted(unknown))}")
    return selected


def main() -> None:
    args = parse_args()
    measurements = benchmarks_by_name(args)
    selected = select(args.only, [SIMULATED, *measurements])
    print(environment.line(), flush=True)
    if SIMULATED in selected:
        for figures in sharing.measure():
            print_figures(figures)
    if selected <= {SIMULATED}:
        return
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch,
        running(Path(scratch), brokers=args.brokers) as product,
    ):
        print_figures({"benchmark": "manage.py up", "ready_after_s": round(product.ready_after_s, 2)})
        for name, measure in measurements.items():
            if name in selected:
                for figures in measure(product):
                    print_figures(figures)


if __name__ == "__main__":
    main()
