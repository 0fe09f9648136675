"""`make bench`: starts the product in a scratch directory and prints one JSON line per figure.

  python -m benchmarks [--only loads,provisioning,start] [--gb 0.5] [--peer HOST:PORT --peer-pids 1]

With `--peer` the same loads run against another Kafka in the same sitting, and each load ends in a ratio line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import engine_start, environment, load, provisioning
from benchmarks.product import Product, running

BENCH_BANDWIDTH_MB_S = 2_000
LOADS = "a,b,d,c,e,latency"


def say(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


def loads(target: str, bootstrap: str, pids: Iterable[int], gb: float, names: str) -> dict[str, dict[str, Any]]:
    """Runs the loads against one target; figures by load."""
    bench = load.Bench(
        conf={"bootstrap.servers": bootstrap},
        server=load.Server(list(pids)),
        gb=gb,
        acks="1",
        replication_factor=1,
    )
    found = {}
    for figures in bench.run(names.split(",")):
        say({"target": target, **figures})
        found[figures["load"]] = figures
    return found


def ratios(ours: dict[str, dict[str, Any]], peers: dict[str, dict[str, Any]]) -> None:
    """One line per load that both have: our server's cost over the peer's."""
    for name, figures in ours.items():
        key = "server_cpu_s" if name == "latency" else "cpu_s_per_gb"
        if key in figures and key in peers.get(name, {}):
            say({"load": name, "ratio_to_peer": round(figures[key] / peers[name][key], 2), "of": key})


def bench_loads(product: Product, given: argparse.Namespace) -> None:
    """All loads through a tenant port of an instance that no bandwidth limit holds back."""
    instance_id = product.create_instance(name="bench", bandwidth_mb_s=BENCH_BANDWIDTH_MB_S, storage_gb=100)
    instance = product.wait_running(instance_id)
    servers = instance["bootstrap_servers"]
    bootstrap = servers if isinstance(servers, str) else ",".join(servers)
    ours = loads("penstock", bootstrap, product.broker_pids(), given.gb, given.loads)
    if given.peer:
        # A peer's first run warms it up and is not counted.
        loads("peer, first run", given.peer, given.peer_pids, given.gb, given.loads)
        ratios(ours, loads("peer", given.peer, given.peer_pids, given.gb, given.loads))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="start,provisioning,loads")
    parser.add_argument("--loads", default=LOADS)
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--instances", type=int, default=50, help="instances to create one after the other")
    parser.add_argument("--crowd", type=int, default=100, help="instances alive at once")
    parser.add_argument("--peer", help="bootstrap server of another Kafka")
    parser.add_argument("--peer-pids", type=lambda text: [int(pid) for pid in text.split(",")], default=[])
    given = parser.parse_args()
    wanted = set(given.only.split(","))
    print(environment.line(), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch, running(Path(scratch)) as product:
        say({"benchmark": "manage.py up", "ready_after_s": round(product.ready_after_s, 2)})
        if "start" in wanted:
            say(engine_start.measure(product))
        if "loads" in wanted:
            bench_loads(product, given)
        if "provisioning" in wanted:
            say(provisioning.provision(product, given.instances))
            say(provisioning.crowd(product, given.crowd, existing=given.instances))


if __name__ == "__main__":
    main()
