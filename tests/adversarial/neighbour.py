"""The neighbour as a process of its own, for no attack may slow down who measures:
`python -m tests.adversarial.neighbour BOOTSTRAP TOPIC`.

Produces so many records a second with acks=all until its standard input ends, and prints one JSON line of what it saw.
"""

from __future__ import annotations

import json
import select
import sys
import time
from functools import partial
from typing import Any, Final

from confluent_kafka import Producer

RECORDS_PER_S: Final = 100
VALUE: Final = b"x" * 100


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


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

    # A broker that is still making partitions has its client come again a little later each time.
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
