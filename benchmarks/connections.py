"""Many clients on one broker: cost of an open connection, and its effect on other clients."""

from __future__ import annotations

import resource
import socket
import struct
import time
from typing import Any

import psutil

from benchmarks.neighbours import begin, finish
from benchmarks.product import Product, bootstrap_of

# ApiVersions version 0: size, API key 18, version 0, correlation id 1, null client id.
GREETING = struct.pack(">ihhih", 10, 18, 0, 1, -1)
ANSWER_TIMEOUT_S = 10
SECONDS = 10


def measure(product: Product, connection_count: int) -> dict[str, Any]:
    """Opens `connection_count` connections to one broker, each with one answered request; then measures a paced
    producer beside them.
    """
    _, descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors_max, descriptors_max))
    instance_id = product.create_instance(name="crowded", bandwidth_mb_s=10, storage_gb=10)
    instance = product.wait_running(instance_id)
    product.call("POST", f"/instances/{instance_id}/topics", {"name": "modest", "partitions": 3})
    bootstrap = bootstrap_of(instance)
    alone = finish(_begin_producer(bootstrap))
    host, _, port = bootstrap.split(",")[0].partition(":")
    broker = psutil.Process(product.broker_pids()[0])
    rss_before = broker.memory_info().rss
    began_s = time.monotonic()
    sockets = [socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S) for _ in range(connection_count)]
    for connection in sockets:
        connection.sendall(GREETING)
    answered = sum(_is_answered(connection) for connection in sockets)
    duration_s = time.monotonic() - began_s
    rss_after = broker.memory_info().rss
    producer_result = finish(_begin_producer(bootstrap))
    cpu_before_s = sum(broker.cpu_times()[:2])
    time.sleep(SECONDS)
    idle_cpu_s = sum(broker.cpu_times()[:2]) - cpu_before_s
    for connection in sockets:
        connection.close()
    return {
        "benchmark": "connections to one broker",
        "connections": connection_count,
        "answered": answered,
        "opened_and_answered_per_s": round(connection_count / duration_s),
        "rss_kb_per_connection": round((rss_after - rss_before) / connection_count / 1e3, 2),
        "idle_cpu_share": round(idle_cpu_s / SECONDS, 4),
        "ack_p50_ms_alone": round(alone.latency_ms(0.5), 3),
        "ack_p50_ms_beside": round(producer_result.latency_ms(0.5), 3),
        "ack_p99_ms_alone": round(alone.latency_ms(0.99), 3),
        "ack_p99_ms_beside": round(producer_result.latency_ms(0.99), 3),
    }


def _begin_producer(bootstrap: str) -> Any:
    return begin(
        bootstrap, topic="modest", client_id="modest", bytes_per_s=100_000, record_bytes=1_000, seconds=SECONDS
    )


def _is_answered(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(4))
    except OSError:
        return False
