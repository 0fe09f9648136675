"""Sends messages with keys: `producer.py TOPIC [COUNT]`. Ends with 1 if a message was not stored."""

from __future__ import annotations

import json
import sys

from confluent_kafka import KafkaError, Message, Producer
from settings import client_settings

FLUSH_S = 60


class Counts:
    """Messages that were stored and that were not."""

    stored = 0
    failed = 0


def delivered(error: KafkaError | None, message: Message) -> None:
    """Called once for each message, when brokers have stored it on all replicas or it has failed for good."""
    if error is None:
        Counts.stored += 1
    else:
        Counts.failed += 1
        print(f"{message.key()!r} was not stored: {error}", file=sys.stderr)


def main(topic: str, count: int) -> int:
    # An idempotent producer repeats what was not acknowledged, without storing it twice or out of order.
    producer = Producer(
        client_settings() | {"enable.idempotence": "true", "compression.type": "zstd", "linger.ms": "20"}
    )
    for number in range(count):
        value = json.dumps({"order": number, "total": number * 3})
        while True:
            try:
                producer.produce(topic, key=f"o-{number}", value=value, on_delivery=delivered)
                break
            except BufferError:  # the local queue is full: wait for acknowledgements, which also paces the producer
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(FLUSH_S)
    print(f"{Counts.stored} stored, {Counts.failed + left} not stored")
    return 1 if Counts.failed or left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100))
