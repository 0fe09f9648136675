"""Bandwidth of an instance whose traffic is uneven: one hot partition of three, and a hot partition that moves from
broker to broker, under the bandwidth policies `static` and `adaptive`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import flood
from benchmarks.product import Product, bootstrap_of
from benchmarks.raw_requests import leaders_of

BOUGHT_MB_S = 20
POLICIES = ("static", "adaptive")
TOPIC = "hot"
BATCH_BYTES, CLIENTS = 100_000, 10
# Start of a run that is reported separately, because the policy is still adapting.
GRACE_S = 3
STATIONARY_RUN_S = 30
MOVE_INTERVAL_S, MOVING_RUN_S = 10, 60
PEAK_WINDOW_S = 10
SLOTS_PER_WINDOW = PEAK_WINDOW_S * 1000 // flood.SLOT_MS


def measure(product: Product, brokers: int) -> Iterator[dict[str, Any] | str]:
    """Yields a line for each policy, with the figures of a fixed and of a moving hot partition, then the table."""
    instance_id = product.create_instance(name="hot", bandwidth_mb_s=BOUGHT_MB_S, storage_gb=50)
    bootstrap = bootstrap_of(product.wait_running(instance_id))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, brokers, 1)])[TOPIC].result(30)
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    leaders = leaders_of((host, int(port)), TOPIC)
    if len(set(leaders)) != brokers:
        raise SystemExit(f"the partitions of {TOPIC} are led by {sorted(set(leaders))}")
    figures_by_policy = {}
    for policy in POLICIES:
        product.call("PATCH", f"/instances/{instance_id}", {"settings": {"bandwidth_policy": policy}})
        product.wait_running(instance_id)
        # An interval longer than the run: the hot partition does not move.
        stationary = _flood(bootstrap, STATIONARY_RUN_S, MOVING_RUN_S)
        moving = _flood(bootstrap, MOVING_RUN_S, MOVE_INTERVAL_S)
        figures = figures_by_policy[policy] = {
            "mb_s_after_3_s": _mb_s(flood.per_s(stationary, GRACE_S, STATIONARY_RUN_S)),
            "mb_s_first_3_s": _mb_s(flood.per_s(stationary, 0, GRACE_S)),
            "mb_s_over_10_s_most": _mb_s(peak_bytes_per_s(stationary["slots"])),
            "moving_mb_s": _mb_s(flood.per_s(moving, 0, MOVING_RUN_S)),
            "moving_used_percent": round(flood.per_s(moving, 0, MOVING_RUN_S) / BOUGHT_MB_S / 1e4, 1),
            "moving_mb_s_over_10_s_most": _mb_s(peak_bytes_per_s(moving["slots"])),
            "errors": add_error_counts(stationary["errors"], moving["errors"]),
        }
        yield {"benchmark": f"one hot partition, {BOUGHT_MB_S} MB/s bought", "policy": policy, **figures}
    yield table(figures_by_policy)


def _flood(bootstrap: str, duration_s: int, move_interval_s: int) -> dict[str, Any]:
    """Produces to one partition at a time, and to the next one every `move_interval_s`."""
    return flood.finish(
        flood.begin(
            bootstrap, "produce", "hot", seconds=duration_s + 1, topic=TOPIC, batch_bytes=BATCH_BYTES, clients=CLIENTS,
            move_interval_s=move_interval_s,
        )
    )  # fmt: skip


def peak_bytes_per_s(slots: list[int]) -> float:
    """Returns the bytes per second of the ten seconds with the most bytes."""
    window_count = max(1, len(slots) - SLOTS_PER_WINDOW + 1)
    return max(sum(slots[slot : slot + SLOTS_PER_WINDOW]) for slot in range(window_count)) / PEAK_WINDOW_S


def add_error_counts(*counts: dict[str, int]) -> dict[str, int]:
    """Returns the counts of several floods, added by error."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _mb_s(bytes_per_s: float) -> float:
    return round(bytes_per_s / 1e6, 2)


def table(figures_by_policy: dict[str, dict[str, Any]]) -> str:
    """Returns the table of docs/explanation/PERFORMANCE.md."""
    lines = [
        f"| policy | one hot partition, after {GRACE_S} s | busiest {PEAK_WINDOW_S} s "
        f"| moving every {MOVE_INTERVAL_S} s, used | busiest {PEAK_WINDOW_S} s |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {policy} | {figures['mb_s_after_3_s']} MB/s | {figures['mb_s_over_10_s_most']} MB/s "
        f"| {figures['moving_used_percent']} % | {figures['moving_mb_s_over_10_s_most']} MB/s |"
        for policy, figures in figures_by_policy.items()
    ]
    return "\n".join(lines)
