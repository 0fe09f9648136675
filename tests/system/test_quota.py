"""A producer far above its quota is held to it without an error; another client does not notice (QUO-30, 31, 35)."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.stack import Stack
from tests.support.tenancy import Caller, addresses, demo_tenant, size_of_run
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

LIMIT_BYTES_PER_S = 1_000_000
MEASURED_S = size_of_run("PENSTOCK_QUOTA_SECONDS", 11)
# The window of the quota (QUO-9): after this long a producer from a standing start is held to the rate on average.
WINDOW_S = 11
RECORD = b"x" * 10_000


class Sender:
    """A producer with a client id of its own that offers `bytes_per_s` and notes when records were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, bytes_per_s: float) -> None:
        self.acknowledged: list[tuple[float, int]] = []
        self.latencies_ms: list[float] = []
        self.errors: list[Any] = []
        self.throttle_ms_max = 0
        self.topic, self.bytes_per_s = topic, bytes_per_s
        self.stop = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "linger.ms": 5,
                "queue.buffering.max.kbytes": 1_000_000,
                "message.timeout.ms": 300_000,
                "statistics.interval.ms": 500,
                "stats_cb": self._statistics,
            }
        )
        self.thread = threading.Thread(target=self._run)

    def _statistics(self, raw: str) -> None:
        for broker in json.loads(raw)["brokers"].values():
            self.throttle_ms_max = max(self.throttle_ms_max, broker["throttle"]["max"])

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            if not self.stop.is_set():  # what is given up at the end is purged
                self.errors.append(error)
            return
        self.acknowledged.append((time.monotonic(), len(message.value())))
        self.latencies_ms.append(message.latency() * 1e3)

    def _run(self) -> None:
        due = time.monotonic()
        while not self.stop.is_set():
            self.producer.produce(self.topic, RECORD, on_delivery=self._delivered)
            due += len(RECORD) / self.bytes_per_s
            while not self.stop.is_set() and time.monotonic() < due:
                self.producer.poll(max(0.0, min(0.01, due - time.monotonic())))
            self.producer.poll(0)

    def bytes_between(self, start: float, end: float) -> int:
        return sum(size for at, size in self.acknowledged if start <= at < end)

    def __enter__(self) -> Sender:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.producer.purge()
        self.producer.poll(0)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def set_quota(caller: Caller, instance_id: str, client_id: str) -> None:
    status, body = caller.call(
        "PUT",
        f"/instances/{instance_id}/quotas",
        {"entity": {"client_id": client_id}, "limits": {"producer_byte_rate": LIMIT_BYTES_PER_S}},
    )
    assert status == 200, body


def test_a_producer_at_ten_times_its_quota_is_held_to_it(stack: Stack) -> None:
    caller = demo_tenant(stack)
    instance = caller.instance("quota", bandwidth_mb_s=60)
    bootstrap = ",".join(addresses(instance))
    for topic in ("greedy", "modest"):
        caller.topic(instance["id"], topic, 1)
    with Sender(bootstrap, "modest", "modest", 200_000) as alone:
        eventually(lambda: len(alone.latencies_ms) > 100, within_s=60, what="the untouched client's own latency")
    set_quota(caller, instance["id"], "greedy")
    with (
        Sender(bootstrap, "modest", "modest", 200_000) as modest,
        Sender(bootstrap, "greedy", "greedy", 10_000_000) as greedy,
    ):
        eventually(lambda: len(greedy.acknowledged) > 0, within_s=30, what="the first acknowledgement")
        # The burst that a fresh window grants is over once the window is full; from there on the mean is the limit.
        start = greedy.acknowledged[0][0] + WINDOW_S
        end = start + MEASURED_S
        eventually(lambda: time.monotonic() > end, within_s=WINDOW_S + MEASURED_S + 10, what="the measured span")
        held = greedy.bytes_between(start, end) / MEASURED_S
        answer = caller.get(f"/instances/{instance['id']}/throughput")
    print(
        f"held to {held / 1e6:.3f} MB/s over {MEASURED_S} s; throttle time told to the client up to "
        f"{greedy.throttle_ms_max} ms; untouched client's p99 {percentile(alone.latencies_ms, 0.99):.1f} ms alone, "
        f"{percentile(modest.latencies_ms, 0.99):.1f} ms beside it"
    )
    assert not greedy.errors[:1]
    assert not modest.errors[:1]
    assert held == pytest.approx(LIMIT_BYTES_PER_S, rel=0.05 if MEASURED_S >= 30 else 0.15)
    assert greedy.throttle_ms_max > 0
    assert modest.throttle_ms_max == 0
    rules = json.dumps(answer)
    assert "producer_byte_rate" in rules
    assert "greedy" in rules
    assert '"modest"' not in rules
    caller.call("DELETE", f"/instances/{instance['id']}")
