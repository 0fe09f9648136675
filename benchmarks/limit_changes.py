"""Time until every broker enforces a changed client quota, from the request on: by REST, and by a Kafka admin call. A
broker answers DescribeClientQuotas from the metadata image that it enforces.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.neighbours import limit_client
from benchmarks.product import Product, bootstrap_of
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.quotas import DescribeClientQuotasRequest, QuotaFilterComponent

CHANGES = 100
CLIENT = "changing"
FIRST_LIMIT_BYTES_PER_S = 1_000_000
DEADLINE_S = 10.0
EXACT_NAME = 0


class _Broker:
    """A connection to one broker of the instance, for repeated requests."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        host, _, port = address.rpartition(":")
        self._connection = stack.enter_context(socket.create_connection((host, int(port)), 10))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = stack.enter_context(self._connection.makefile("rb"))
        request = DescribeClientQuotasRequest(
            components=[QuotaFilterComponent(entity_type="client-id", match_type=EXACT_NAME, match=CLIENT)]
        )
        body = encode_request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, request)
        self._frame = encode_request_frame(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "benchmark", body)

    def limit(self) -> float | None:
        """Returns the client's produce limit in force on this broker, in bytes per second."""
        self._connection.sendall(self._frame)
        frame = self._answers.read(int.from_bytes(self._answers.read(4), "big"))
        answer = decode_response(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, frame, 4, len(frame))
        return next((value.value for entry in answer.entries or () for value in entry.values), None)


def measure(product: Product) -> Iterator[dict[str, Any]]:
    """Yields a line for each way to change the quota."""
    instance_id = product.create_instance(name="changes", bandwidth_mb_s=5, storage_gb=10)
    bootstrap = bootstrap_of(product.wait_running(instance_id))
    product.let_everybody_administer(instance_id)

    def set_by_rest(limit: int) -> None:
        limits = {"producer_byte_rate": limit}
        product.call("PUT", f"/instances/{instance_id}/quotas", {"entity": {"client_id": CLIENT}, "limits": limits})

    set_limit_by_way: dict[str, Callable[[int], None]] = {
        "REST": set_by_rest,
        "Kafka admin": lambda limit: limit_client(bootstrap, CLIENT, limit),
    }
    with ExitStack() as stack:
        brokers = [_Broker(address, stack) for address in bootstrap.split(",")]
        limit = FIRST_LIMIT_BYTES_PER_S
        for way, set_limit in set_limit_by_way.items():
            durations_ms = []
            for _ in range(CHANGES):
                limit += 1
                durations_ms.append(_seconds_until_enforced(brokers, limit, set_limit) * 1e3)
            yield {"benchmark": "a changed quota in force on every broker", "way": way, **_percentiles(durations_ms)}


def _seconds_until_enforced(brokers: list[_Broker], limit: int, set_limit: Callable[[int], None]) -> float:
    started_s = time.monotonic()
    set_limit(limit)
    for broker in brokers:
        while broker.limit() != limit:
            if time.monotonic() - started_s > DEADLINE_S:
                raise SystemExit(f"a quota was not in force after {DEADLINE_S:g} s")
            time.sleep(0.001)
    return time.monotonic() - started_s


def _percentiles(durations_ms: list[float]) -> dict[str, Any]:
    sorted_ms = sorted(durations_ms)
    return {
        "changes": len(sorted_ms),
        "p50_ms": round(sorted_ms[len(sorted_ms) // 2], 1),
        "p99_ms": round(sorted_ms[int(len(sorted_ms) * 0.99) - 1], 1),
        "longest_ms": round(sorted_ms[-1], 1),
    }
