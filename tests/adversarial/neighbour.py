"""The neighbour, a process of its own so that no attack slows down the measurement:
`python -m tests.adversarial.neighbour BOOTSTRAP TOPIC`.

Produces 100 records a second with acks=all until its standard input ends, and prints one JSON line with its figures.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from confluent_kafka import Producer

RECORDS_PER_S: Final = 100
VALUE: Final = b"x" * 100


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


@contextmanager
def measured_neighbour(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """Runs the process during the block. The yielded dictionary has its figures after the block: `p50_ms`, `p99_ms`,
    `max_ms`, `records`, `records_per_s`, `errors`.
    """
    figures: dict[str, Any] = {}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.adversarial.neighbour", bootstrap, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n", "the neighbour could not produce"
        yield figures
        figures.update(json.loads(process.communicate(timeout=120)[0].splitlines()[-1]))
    finally:
        process.kill()
        process.wait()


def main() -> None:
    bootstrap, topic = sys.argv[1:3]
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "delivery.timeout.ms": 30_000})
    latencies_ms: list[float] = []
    errors: list[str] = []

    def on_delivery(sent_s: float, error: Any, _message: Any) -> None:
        if error is not None:
            errors.append(str(error))
        else:
            latencies_ms.append((time.perf_counter() - sent_s) * 1000)

    # A broker that is still creating partitions makes the client retry, a little later each time.
    for partition in producer.list_topics(topic, timeout=30).topics[topic].partitions:
        producer.produce(topic, VALUE, partition=partition)
    producer.flush(30)
    print("ready", flush=True)
    due_s = began_s = time.perf_counter()
    while not select.select([sys.stdin], [], [], 0)[0]:
        due_s += 1 / RECORDS_PER_S
        producer.produce(topic, VALUE, on_delivery=partial(on_delivery, time.perf_counter()))
        while (left_s := due_s - time.perf_counter()) > 0:
            producer.poll(left_s)
    producer.flush(30)
    took_s = time.perf_counter() - began_s
    ordered = sorted(latencies_ms)
    figures = {"records_per_s": len(ordered) / took_s} | {
        "p50_ms": percentile(ordered, 50),
        "p99_ms": percentile(ordered, 99),
        "max_ms": percentile(ordered, 100),
    }
    print(json.dumps({"records": len(ordered), "errors": errors[:10], **figures}), flush=True)


if __name__ == "__main__":
    main()
