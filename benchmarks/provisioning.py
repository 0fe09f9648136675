"""Time from the REST call to the first accepted produce, repeated; and many instances side by side."""

from __future__ import annotations

import statistics
import time
from typing import Any

import psutil
from confluent_kafka import Producer

from benchmarks.product import Product, bootstrap_of

FIRST_PRODUCE_TIMEOUT_S = 60.0


def wait_for_first_produce(bootstrap: str, topic: str) -> None:
    """Waits until one record is acknowledged; creates the topic on the way.

    Raises:
        SystemExit: no acknowledgement within `FIRST_PRODUCE_TIMEOUT_S`.
    """
    delivery_errors: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 0,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    producer.produce(topic, b"first", on_delivery=lambda error, _message: delivery_errors.append(error))
    deadline_s = time.monotonic() + FIRST_PRODUCE_TIMEOUT_S
    while not delivery_errors and time.monotonic() < deadline_s:
        producer.poll(0.01)
    if delivery_errors != [None]:
        raise SystemExit(f"first produce to {bootstrap} failed: {delivery_errors}")


def provision(product: Product, count: int) -> dict[str, Any]:
    """Creates `count` instances one after the other; returns seconds from the call to running and to the
    first produce.
    """
    running_s, produced_s = [], []
    for index in range(count):
        started_s = time.monotonic()
        instance_id = product.create_instance(name=f"bench-{index}", bandwidth_mb_s=1, storage_gb=1)
        instance = product.wait_running(instance_id)
        running_s.append(time.monotonic() - started_s)
        wait_for_first_produce(bootstrap_of(instance), "first")
        produced_s.append(time.monotonic() - started_s)
    return {
        "benchmark": "create instance to first accepted produce",
        "instances": count,
        **_spread("running", running_s),
        **_spread("first_produce", produced_s),
    }


def fill_product(product: Product, instance_count: int, existing: int) -> dict[str, Any]:
    """Grows to `instance_count` instances, each with a topic of 3 partitions, then produces once more to each."""
    rss_before = _broker_rss_bytes(product)
    instances = []
    for index in range(instance_count - existing):
        instance_id = product.create_instance(name=f"crowd-{index}", bandwidth_mb_s=1, storage_gb=1)
        instances.append(product.wait_running(instance_id))
        product.call("POST", f"/instances/{instance_id}/topics", {"name": "orders", "partitions": 3})
    for instance in instances:
        wait_for_first_produce(bootstrap_of(instance), "orders")
    rss_after = _broker_rss_bytes(product)
    added_count = max(1, len(instances))
    return {
        "benchmark": "instances alive at once",
        "instances": instance_count,
        "brokers": len(rss_after),
        "broker_rss_mb": [round(rss / 1e6) for rss in rss_after],
        "rss_kb_per_instance_and_broker": round(
            (sum(rss_after) - sum(rss_before)) / len(rss_after) / added_count / 1e3, 1
        ),
    }


def _broker_rss_bytes(product: Product) -> list[int]:
    return [psutil.Process(pid).memory_info().rss for pid in product.broker_pids()]


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {f"{name}_p50_s": round(cuts[49], 3), f"{name}_p99_s": round(cuts[98], 3)}
