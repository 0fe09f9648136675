"""Accuracy of a byte limit: bytes admitted over 60 s and over each 10 s of them, and the throttle times of clients, of
the product and of another Kafka under the same floods in turn.

A cell is a number of clients that share one client id, the bytes of their batches, the limit, and the brokers that lead
the topic's partitions. Time counts from the first response, so the burst at the start is included. A cell whose clients
could not offer the limit is marked and counts for no median.

The clients of a cell flood, or the cell is one stock client that sends in a pattern (`benchmarks.stock_client`).
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator, Sequence
from itertools import product as combinations
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import flood, stock_client
from benchmarks.neighbours import limit_client
from benchmarks.product import Product, bootstrap_of
from benchmarks.raw_requests import leaders_of

KB, MB = 1_000, 1_000_000
WINDOW_S = 10
# Without a throttled response, clients count as having offered the limit if at least this share of it was admitted.
QUIET_RESULT_SHARE = 0.9
BANDWIDTH_MB_S_PER_BROKER = 600
# Bounds of the cells that are flooded at once.
BESIDE_MB_S_MAX, BESIDE_MAX = 20.0, 8


class Cell(NamedTuple):
    """One case: clients of a client id, their batches, the limit, the brokers, and the kind of load."""

    clients: int
    batch_bytes: int
    limit_mb_s: float
    brokers: int
    load: str = "flood"

    @property
    def name(self) -> str:
        return f"{self.load}-c{self.clients}-b{self.batch_bytes}-l{self.limit_mb_s}-n{self.brokers}"


FLOODS = tuple(
    Cell(*values) for values in combinations((1, 10, 100), (KB, 16 * KB, 128 * KB, MB), (0.1, 1.0, 10.0, 50.0), (1, 3))
)
PATTERNS = tuple(
    Cell(1, batch_bytes, limit, 3, load)
    for batch_bytes, limit, load in combinations((16 * KB, 128 * KB), (1.0, 10.0), stock_client.KINDS)
)
FULL_SIZE = FLOODS + PATTERNS
QUICK_SIZE = (
    Cell(1, 16 * KB, 1.0, 1),
    Cell(10, 128 * KB, 10.0, 1),
    Cell(10, 16 * KB, 10.0, 3),
    Cell(100, KB, 1.0, 3),
    *(Cell(1, 16 * KB, 1.0, 3, load) for load in stock_client.KINDS),
)
SIZES = {"quick": (QUICK_SIZE, 20), "patterns": (PATTERNS, 60), "whole": (FULL_SIZE, 60)}


def measure(product: Product, peer: str | None, size: str, brokers: int) -> Iterator[dict[str, Any] | str]:
    """Yields a line of figures for each cell and target, then the tables. Cells that need more brokers are left out."""
    cells, seconds = SIZES[size]
    instance_id = product.create_instance(
        name="accuracy", bandwidth_mb_s=BANDWIDTH_MB_S_PER_BROKER * brokers, storage_gb=100
    )
    addresses = {"penstock": bootstrap_of(product.wait_running(instance_id))}
    if peer:
        addresses["peer"] = peer
    figures_by_cell: dict[tuple[Cell, str], dict[str, Any]] = {}
    for group in groups_of([cell for cell in cells if cell.brokers <= brokers]):
        for cell in group:
            limits = {"producer_byte_rate": int(cell.limit_mb_s * MB)}
            product.call(
                "PUT", f"/instances/{instance_id}/quotas", {"entity": {"client_id": cell.name}, "limits": limits}
            )
            if peer:
                limit_client(peer, cell.name, int(cell.limit_mb_s * MB))
        for target, bootstrap in addresses.items():
            for cell, figures in zip(group, _measure_group(bootstrap, group, seconds), strict=True):
                figures_by_cell[cell, target] = figures
                yield {"benchmark": "accuracy of a byte limit", "target": target, **cell._asdict(), **figures}
    yield errors_table(figures_by_cell, tuple(addresses), seconds)
    yield delays_table(figures_by_cell, tuple(addresses))


def groups_of(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Returns the groups of cells that are flooded at the same time. All cells of a group have the same limit, so that
    their clients are throttled for equally long.
    """
    groups: list[list[Cell]] = []
    for cell in sorted(cells, key=lambda cell: cell.limit_mb_s):
        last = groups[-1] if groups else []
        has_room = len(last) < BESIDE_MAX and (len(last) + 1) * cell.limit_mb_s <= BESIDE_MB_S_MAX
        if last and last[0].limit_mb_s == cell.limit_mb_s and has_room:
            last.append(cell)
        else:
            groups.append([cell])
    return groups


def _measure_group(bootstrap: str, group: Sequence[Cell], seconds: int) -> list[dict[str, Any]]:
    topics = [_make_topic(bootstrap, cell) for cell in group]
    floods = [_begin(bootstrap, cell, topic, seconds + 1) for cell, topic in zip(group, topics, strict=True)]
    results = [flood.finish(process) for process in floods]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics(topics).values():
        deleted.result(30)
    return [figures_of(figures, cell, seconds) for figures, cell in zip(results, group, strict=True)]


def _begin(bootstrap: str, cell: Cell, topic: str, seconds: int) -> subprocess.Popen[bytes]:
    common: dict[str, Any] = {"seconds": seconds, "topic": topic, "batch_bytes": cell.batch_bytes}
    if cell.load == "flood":
        return flood.begin(bootstrap, "produce", cell.name, clients=cell.clients, **common)
    limit, module = int(cell.limit_mb_s * MB), stock_client.__name__
    return flood.begin(bootstrap, cell.load, cell.name, module=module, limit=limit, **common)


def figures_of(figures: dict[str, Any], cell: Cell, seconds: int) -> dict[str, Any]:
    """Returns errors in percent of the limit; of the 10 s spans, the median of the absolute errors and the largest
    error.
    """
    limit = cell.limit_mb_s * MB
    spans = [
        (flood.per_s(figures, start_s, start_s + WINDOW_S) / limit - 1) * 100 for start_s in range(0, seconds, WINDOW_S)
    ]
    worst_error = max(spans, key=lambda error: abs(error))
    admitted_share = flood.per_s(figures, 0, seconds) / limit
    return {
        "error_percent": round((admitted_share - 1) * 100, 1),
        "span_error_percent": round(statistics.median(map(abs, spans)), 1),
        "span_error_percent_worst": round(worst_error, 1),
        "is_offered": bool(figures["throttled"]) or admitted_share >= QUIET_RESULT_SHARE,
        "errors": figures["errors"],
        "lost": figures["lost"],
        **{name: figures[name] for name in figures if name.startswith("throttle")},
    }


def _make_topic(bootstrap: str, cell: Cell) -> str:
    """Creates a topic with one partition on each of the cell's brokers."""
    topic = f"accuracy-{cell.name}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, cell.brokers, 1)])[topic].result(30)
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    leaders = leaders_of((host, int(port)), topic)
    if len(set(leaders)) != cell.brokers:
        raise SystemExit(f"{topic} is led by {sorted(set(leaders))}, not by {cell.brokers} brokers")
    return topic


Results = dict[tuple[Cell, str], dict[str, Any]]


def errors_table(figures_by_cell: Results, targets: Sequence[str], seconds: int) -> str:
    """Returns medians by kind of load, number of brokers and limit, over clients and batches."""
    heading = " | ".join(
        f"{target}: {seconds} s, median | worst | {WINDOW_S} s, median | worst" for target in map(title, targets)
    )
    lines = [f"| load | brokers | limit, MB/s | cells | {heading} |", "|---" * 4 + "|---" * 4 * len(targets) + "|"]
    for load, brokers, limit in sorted({(cell.load, cell.brokers, cell.limit_mb_s) for cell, _ in figures_by_cell}):
        cells = [
            cell for cell in dict.fromkeys(cell for cell, _ in figures_by_cell) if cell[2:] == (limit, brokers, load)
        ]
        cells_of_row = []
        for target in targets:
            offered = [figures for cell in cells if (figures := figures_by_cell[cell, target])["is_offered"]]
            cells_of_row += _errors(offered) if offered else ["not offered"] + [""] * 3
        lines.append(f"| {load} | {brokers} | {limit:g} | {len(cells)} | {' | '.join(cells_of_row)} |")
    return "\n".join(lines)


def _errors(offered: Sequence[dict[str, Any]]) -> list[str]:
    errors = [figures["error_percent"] for figures in offered]
    spans = [figures["span_error_percent"] for figures in offered]
    worst = [figures["span_error_percent_worst"] for figures in offered]
    return [
        f"{statistics.median(errors):+.1f} %",
        f"{max(errors, key=abs):+.1f} %",
        f"±{statistics.median(spans):.1f} %",
        f"{max(worst, key=abs):+.1f} %",
    ]


def delays_table(figures_by_cell: Results, targets: Sequence[str]) -> str:
    """Returns the throttle times of the clients of each load."""
    heading = " | ".join(f"{target}: waits | p50 | p99 | longest" for target in map(title, targets))
    lines = [
        f"| load | clients | batch, KB | limit, MB/s | brokers | {heading} |",
        "|---|---|---|---|---|" + "---|" * 4 * len(targets),
    ]
    for cell in dict.fromkeys(cell for cell, _ in figures_by_cell):
        columns = []
        for target in targets:
            figures = figures_by_cell[cell, target]
            columns += [str(figures["throttled"])]
            columns += [f"{figures[f'throttle_ms_{name}']:,} ms" for name in ("p50", "p99", "max")]
        cell_columns = f"{cell.load} | {cell.clients} | {cell.batch_bytes // KB} | {cell.limit_mb_s:g} | {cell.brokers}"
        lines.append(f"| {cell_columns} | {' | '.join(columns)} |")
    return "\n".join(lines)


def title(target: str) -> str:
    """Returns the name of a target as the tables show it."""
    return {"penstock": "Penstock", "peer": "Apache Kafka"}[target]
