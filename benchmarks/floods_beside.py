"""Effect of a tenant that floods the brokers on another tenant, by kind of flood: acknowledgement latency and
throughput of a client that uses a fifth of its instance's bandwidth, alone and beside the flood.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import flood
from benchmarks.neighbours import SETTLING_S, Paced, begin, finish, median
from benchmarks.product import Product, bootstrap_of

MB = 1_000_000
BOUGHT_MB_S = 5
# Part of its instance's bandwidth that the quiet client uses.
QUIET_SHARE = 0.2
QUIET_BYTES_PER_S, QUIET_RECORD_BYTES = int(QUIET_SHARE * BOUGHT_MB_S * MB), 1_000
# Topics of the flooding instance, which its metadata requests list.
TOPICS = 20


class Flood(NamedTuple):
    """A kind of flood; `begin_options` are further arguments of `flood.begin`."""

    title: str
    kind: str
    begin_options: dict[str, Any]


FLOODS = (
    Flood("bytes, without an end", "produce", {"batch_bytes": 100_000, "clients": 10}),
    Flood("batches of 100 bytes", "produce", {"batch_bytes": 100, "clients": 10}),
    Flood("1,000,000 tiny requests a minute", "requests", {"clients": 10}),
    Flood("connections, one after the other", "connections", {"clients": 50}),
    Flood(f"metadata of {TOPICS} topics", "metadata", {"clients": 10}),
    Flood("topics made and deleted", "mutations", {"clients": 5}),
)


def measure(product: Product, seconds: float, rounds: int) -> Iterator[dict[str, Any] | str]:
    """Measures alone and beside in turn, so that variations of the machine affect both; yields a line per flood, then
    the table.
    """
    addresses = {}
    for name in ("flooding", "quiet"):
        instance_id = product.create_instance(name=name, bandwidth_mb_s=BOUGHT_MB_S, storage_gb=50)
        addresses[name] = bootstrap_of(product.wait_running(instance_id))
    _make_topics(addresses["flooding"], ["flood", *(f"beside-{number}" for number in range(TOPICS - 1))])
    _make_topics(addresses["quiet"], ["quiet"])
    finish(_begin_quiet_producer(addresses["quiet"], SETTLING_S * 2))
    rows = []
    for flood_kind in FLOODS:
        alone, beside, floods = [], [], []
        for _ in range(rounds):
            alone.append(finish(_begin_quiet_producer(addresses["quiet"], seconds)))
            flood_process = flood.begin(
                addresses["flooding"],
                flood_kind.kind,
                "flood",
                seconds=seconds + SETTLING_S,
                **flood_kind.begin_options,
            )
            beside.append(finish(_begin_quiet_producer(addresses["quiet"], seconds)))
            floods.append(flood.finish(flood_process))
        rows.append(figures_of(flood_kind, alone, beside, floods, seconds))
        yield {"benchmark": "a flood of another tenant", **rows[-1]}
    yield table(rows)


def figures_of(
    flood_kind: Flood, alone: list[Paced], beside: list[Paced], floods: list[dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """Returns the figures of a flood, as medians of the rounds; throughput is the quiet client's acknowledged bytes/s
    beside the flood, in percent of those alone.
    """
    latencies = {
        f"{name}_p{percent}_ms": median([span.latency_ms(percent / 100) for span in spans])
        for percent in (50, 99)
        for name, spans in (("alone", alone), ("beside", beside))
    }
    until_s = seconds - 1
    return {
        "flood": flood_kind.title,
        **latencies,
        "p99_ratio": round(latencies["beside_p99_ms"] / latencies["alone_p99_ms"], 2),
        "throughput_percent": round(
            100 * median([span.bytes_per_s(0, until_s) for span in beside])
            / median([span.bytes_per_s(0, until_s) for span in alone]), 1,
        ),
        "flood_per_s": round(median([flood.per_s(result, 0, seconds) for result in floods])),
        "flood_counts": "bytes" if flood_kind.kind == "produce" else "answers",
        "flood_throttled": sum(result["throttled"] for result in floods),
        "flood_lost": sum(result["lost"] for result in floods),
        "errors": sum(len(span.errors) for span in (*alone, *beside)),
    }  # fmt: skip


def _make_topics(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for creation in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        creation.result(60)


def _begin_quiet_producer(bootstrap: str, seconds: float) -> Any:
    return begin(
        bootstrap, topic="quiet", client_id="quiet", bytes_per_s=QUIET_BYTES_PER_S, record_bytes=QUIET_RECORD_BYTES,
        seconds=seconds,
    )  # fmt: skip


def table(figures_of_floods: list[dict[str, Any]]) -> str:
    """Returns the table of docs/explanation/PERFORMANCE.md."""
    head = "| flood | answered a second | alone p50 / p99 | beside p50 / p99 | p99 beside / alone | throughput beside |"
    rows = [
        f"| {line['flood']} | {line['flood_per_s']:,} {line['flood_counts']} "
        f"| {line['alone_p50_ms']} / {line['alone_p99_ms']} ms "
        f"| {line['beside_p50_ms']} / {line['beside_p99_ms']} ms | {line['p99_ratio']} "
        f"| {line['throughput_percent']} % |"
        for line in figures_of_floods
    ]
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])
