"""One stock client (confluent-kafka) that sends in a pattern under which a shared limit is difficult to enforce.

  python -m benchmarks.stock_client --bootstrap HOST:PORT --kind serial --client-id C --topic T --batch-bytes N \\
      --limit BYTES_PER_S --seconds 60

prints one JSON line at its end, as `benchmarks.flood` does. Each record is a batch and a request of its own.

  serial       one record after the other, each awaited, in turn over all partitions, after a period on one of them
  first-burst  several seconds' worth of the limit at once after an idle period; as much is in flight from then on

Time counts from the end of that period, or from the first record of the burst. The period itself is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from benchmarks.flood import Tally
from benchmarks.raw_requests import BATCH_OVERHEAD_BYTES, produce

SERIAL, FIRST_BURST = KINDS = ("serial", "first-burst")
ONE_PARTITION_S: Final = 5
IDLE_S: Final = 5
BURST_S: Final = 5
POLL_S: Final = 0.01
FLUSH_S: Final = 60
GIVEN_UP: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class StockClient:
    """A producer, and the tally of its acknowledged records."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.tally = Tally()
        self._args = args
        self._value = bytes(max(1, args.batch_bytes - BATCH_OVERHEAD_BYTES))
        # Size of the request, which is what quotas count.
        self._weight = len(produce(args.client_id, args.topic, 0, args.batch_bytes)) - 4
        self._in_flight = 0
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": args.bootstrap,
                "client.id": args.client_id,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "message.max.bytes": 10_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
                "delivery.timeout.ms": 300_000,
                "log_level": 0,
                "throttle_cb": self._on_throttle,
                "error_cb": self._on_error,
            }
        )
        self._partitions = len(self._producer.list_topics(args.topic, FLUSH_S).topics[args.topic].partitions)

    def run(self) -> Tally:
        """Sends until the time is over; records in flight at that time are dropped and not counted."""
        if self._args.kind == SERIAL:
            self._send_serially()
        else:
            self._send_bursts()
        self.tally.end(time.monotonic())
        result, self.tally = self.tally, Tally()
        self._producer.purge()
        self._producer.flush(FLUSH_S)
        return result

    def _send_serially(self) -> None:
        for _ in range(self._records_of(ONE_PARTITION_S)):
            self._send(0)
        self._flush()
        end_s = self._begin()
        while time.monotonic() < end_s:
            self._send_in_turn()
            self._flush()

    def _send_bursts(self) -> None:
        for _ in range(self._partitions):
            self._send_in_turn()
        self._flush()
        self._producer.poll(IDLE_S)
        burst = self._records_of(BURST_S)
        end_s = self._begin()
        while time.monotonic() < end_s:
            while self._in_flight < burst:
                self._send_in_turn()
            self._producer.poll(POLL_S)

    def _records_of(self, seconds: int) -> int:
        """Returns the number of records worth `seconds` seconds of the limit."""
        return max(1, seconds * int(self._args.limit) // self._weight)

    def _begin(self) -> float:
        """Resets the tally; returns when the time is over."""
        began_s = time.monotonic()
        self.tally = Tally(began_s)
        return began_s + float(self._args.seconds)

    def _send_in_turn(self) -> None:
        self._send(self._sent % self._partitions)

    def _send(self, partition: int) -> None:
        self._sent += 1
        self._in_flight += 1
        self._producer.produce(self._args.topic, self._value, partition=partition, on_delivery=self._on_delivery)

    def _flush(self) -> None:
        if self._producer.flush(FLUSH_S):
            raise SystemExit(f"{self._args.client_id}: nothing was acknowledged for {FLUSH_S} s")

    def _on_delivery(self, error: Any, _message: Any) -> None:
        self._in_flight -= 1
        if error is None or error.code() not in GIVEN_UP:
            self.tally.record_response(time.monotonic(), self._weight, error.code() if error else 0, 0)

    def _on_throttle(self, event: Any) -> None:
        """Records a throttle time; the client also reports the end of throttling, as a time of 0."""
        if event.throttle_time:
            self.tally.throttles_ms.append(round(event.throttle_time * 1000))

    def _on_error(self, error: Any) -> None:
        """Records a lost connection, or another error by its code; the client itself retries."""
        if error.code() == KafkaError._TRANSPORT:
            self.tally.lost += 1
        else:
            self.tally.errors[error.code()] += 1


def main() -> None:
    """Runs one client and prints its figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.stock_client", description="One stock client.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--batch-bytes", type=int, required=True)
    parser.add_argument("--limit", type=int, required=True, help="bytes a second that the client may send")
    parser.add_argument("--seconds", type=float, required=True)
    print(json.dumps(StockClient(parser.parse_args()).run().summary()))


if __name__ == "__main__":
    main()
