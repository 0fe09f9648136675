"""Effect of a client that is throttled to its quota on another client: acknowledgement latency alone and beside it, in
turn.

  python -m benchmarks.neighbours --bootstrap HOST:PORT --topic T --client-id C --bytes-per-s N --record-bytes N \\
      --seconds S

is one paced producer in a process of its own (clients of one process would share one interpreter and affect each
other); it prints one JSON line with the time, size and latency of each acknowledged record.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.product import Product, bootstrap_of
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaOperation,
)

CLONE = Path(__file__).resolve().parent.parent
VICTIM_BYTES_PER_S, VICTIM_RECORD_BYTES = 100_000, 1_000
LIMIT_BYTES_PER_S = 1_000_000
OFFENCE = 10
OFFENDER_RECORD_BYTES = 10_000
# Connections are made and caches filled in this time, which does not count.
SETTLING_S = 2.0
# Signal that ends a paced producer early; it prints its figures until then.
STOP_SIGNAL = signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Paced:
    """Figures of one paced producer. `acknowledged` has (monotonic seconds, bytes, latency in ms) of each record."""

    acknowledged: list[tuple[float, int, float]]
    errors: list[str]
    throttle_ms_max: int

    def latency_ms(self, share: float) -> float:
        """Returns a percentile of the latencies after the first seconds."""
        counted_from_s = self.acknowledged[0][0] + SETTLING_S
        latencies = sorted(
            record_latency_ms for sent_at_s, _, record_latency_ms in self.acknowledged if sent_at_s >= counted_from_s
        )
        return latencies[min(len(latencies) - 1, int(len(latencies) * share))]

    def bytes_per_s(self, after_s: float, until_s: float) -> float:
        """Returns acknowledged bytes per second between two times since the first acknowledgement."""
        first_s = self.acknowledged[0][0]
        return sum(
            size for acknowledged_s, size, _ in self.acknowledged if after_s <= acknowledged_s - first_s < until_s
        ) / (until_s - after_s)


def begin(
    bootstrap: str, *, topic: str, client_id: str, bytes_per_s: int, record_bytes: int, seconds: float
) -> subprocess.Popen[bytes]:
    """Starts a paced producer in a process of its own; see `finish`."""
    return subprocess.Popen(
        [
            sys.executable, "-m", "benchmarks.neighbours",
            "--bootstrap", bootstrap, "--topic", topic, "--client-id", client_id,
            "--bytes-per-s", str(bytes_per_s), "--record-bytes", str(record_bytes), "--seconds", str(seconds),
        ],
        stdout=subprocess.PIPE, cwd=CLONE,
    )  # fmt: skip


def finish(process: subprocess.Popen[bytes]) -> Paced:
    """Waits for the producer and returns its figures. Raises SystemExit if the process failed."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a paced producer ended with {process.returncode}")
    result = json.loads(out)
    return Paced([tuple(line) for line in result["acknowledged"]], result["errors"], result["throttle_ms_max"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Figures of the modest producer: alone, beside a client that sends as much as its quota admits (`polite`), and
    beside a client that offers ten times its quota (`beside`).

    The difference of the last two is the effect of throttling. `throttled` has the figures of the throttled client.
    """

    alone: list[Paced] = field(default_factory=list)
    polite: list[Paced] = field(default_factory=list)
    beside: list[Paced] = field(default_factory=list)
    throttled: list[Paced] = field(default_factory=list)

    def measure_once(self, bootstrap: str, seconds: float) -> None:
        """Measures one span of each kind."""
        self.alone.append(finish(begin_modest_producer(bootstrap, seconds)))
        polite_process = _begin_neighbour(bootstrap, "polite", LIMIT_BYTES_PER_S, seconds)
        self.polite.append(finish(begin_modest_producer(bootstrap, seconds)))
        finish(polite_process)
        greedy_process = _begin_neighbour(bootstrap, "greedy", OFFENCE * LIMIT_BYTES_PER_S, seconds)
        self.beside.append(finish(begin_modest_producer(bootstrap, seconds)))
        self.throttled.append(finish(greedy_process))

    def summary(self, seconds: float) -> dict[str, Any]:
        latencies = {
            f"{name}_p{percent}_ms": median([span.latency_ms(percent / 100) for span in spans])
            for percent in (50, 99)
            for name, spans in (("alone", self.alone), ("beside_a_polite_one", self.polite), ("beside", self.beside))
        }
        return {
            "benchmark": "a neighbour held to 1 MB/s that offers 10",
            **latencies,
            "held_to_mb_s": median([span.bytes_per_s(0, seconds) / 1e6 for span in self.throttled]),
            "throttle_told_ms_max": max(span.throttle_ms_max for span in self.throttled),
            "errors": sum(len(span.errors) for span in (*self.alone, *self.beside, *self.throttled)),
        }


def measure(product: Product, peer: str | None, seconds: float, rounds: int = 3) -> Iterator[dict[str, Any]]:
    """Yields the figures of the product, and of another Kafka at `peer` (host:port, without authentication) in turn
    with it, so that variations of the machine affect both.
    """
    instance_id = product.create_instance(name="neighbours", bandwidth_mb_s=60, storage_gb=10)
    addresses = {"penstock": bootstrap_of(product.wait_running(instance_id))}
    limits = {"producer_byte_rate": LIMIT_BYTES_PER_S}
    product.call("PUT", f"/instances/{instance_id}/quotas", {"entity": {"client_id": "greedy"}, "limits": limits})
    if peer:
        addresses["peer"] = peer
        limit_client(peer, "greedy", LIMIT_BYTES_PER_S)
    for bootstrap in addresses.values():
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for creation in admin.create_topics([NewTopic(topic, 1, 1) for topic in ("greedy", "modest")]).values():
            creation.result(30)
    spans = {target: Spans() for target in addresses}
    for _ in range(rounds):
        for target, bootstrap in addresses.items():
            spans[target].measure_once(bootstrap, seconds)
    for target, target_spans in spans.items():
        yield {"target": target, **target_spans.summary(seconds)}


def limit_client(bootstrap: str, client_id: str, bytes_per_s: int) -> None:
    """Sets a producer limit of a client of any Kafka (AlterClientQuotas, which the client libraries do not support)."""
    alteration = QuotaAlteration(
        entity=[QuotaEntity(entity_type="client-id", entity_name=client_id)],
        ops=[QuotaOperation(key="producer_byte_rate", value=float(bytes_per_s))],
    )
    body = encode_request(ApiKey.ALTER_CLIENT_QUOTAS, 0, AlterClientQuotasRequest(entries=[alteration]))
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rb") as answers:
        connection.sendall(encode_request_frame(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, "benchmark", body))
        frame = answers.read(int.from_bytes(answers.read(4), "big"))
    answer = decode_response(ApiKey.ALTER_CLIENT_QUOTAS, 0, frame, 4, len(frame))
    if answer.entries[0].error_code:
        raise SystemExit(f"{bootstrap} does not take the quota: {answer.entries[0].error_message}")


def _begin_neighbour(bootstrap: str, client_id: str, bytes_per_s: int, seconds: float) -> subprocess.Popen[bytes]:
    return begin(bootstrap, topic="greedy", client_id=client_id, bytes_per_s=bytes_per_s,
                 record_bytes=OFFENDER_RECORD_BYTES, seconds=seconds + SETTLING_S)  # fmt: skip


def begin_modest_producer(bootstrap: str, seconds: float) -> subprocess.Popen[bytes]:
    """Starts the producer whose latencies are measured."""
    return begin(bootstrap, topic="modest", client_id="modest", bytes_per_s=VICTIM_BYTES_PER_S,
                 record_bytes=VICTIM_RECORD_BYTES, seconds=seconds)  # fmt: skip


def median(figures: list[float]) -> float:
    """Returns the median, rounded to three digits."""
    return round(sorted(figures)[len(figures) // 2], 3)


class _Producer:
    """Offers records at a rate and records their outcome."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.has_ended = False
        self.figures: dict[str, Any] = {"acknowledged": [], "errors": [], "throttle_ms_max": 0}
        self.producer = Producer(
            {
                "bootstrap.servers": args.bootstrap,
                "client.id": args.client_id,
                "linger.ms": 0,
                "queue.buffering.max.kbytes": 1_000_000,
                "message.timeout.ms": 300_000,
                "statistics.interval.ms": 500,
                "stats_cb": self._on_statistics,
            }
        )

    def _on_statistics(self, raw: str) -> None:
        longest_ms = max(broker["throttle"]["max"] for broker in json.loads(raw)["brokers"].values())
        self.figures["throttle_ms_max"] = max(self.figures["throttle_ms_max"], longest_ms)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.figures["acknowledged"].append((time.monotonic(), len(message.value()), message.latency() * 1e3))
        elif error.code() != KafkaError._PURGE_QUEUE and error.code() != KafkaError._PURGE_INFLIGHT:
            self.figures["errors"].append(str(error))  # records still in flight at the end are purged: no error

    def _poll(self) -> None:
        """Measures latencies with a thread that does nothing else: a latency ends when the client is polled. The
        client's own latency clock has milliseconds, and a loop of shorter polls would occupy a core that the measured
        client needs.
        """
        while not self.has_ended:
            self.producer.poll(0.1)

    def _stop(self, *_: object) -> None:
        self.end_s = 0.0

    def run(self) -> dict[str, Any]:
        record = b"x" * self.args.record_bytes
        send_at_s = time.monotonic()
        self.end_s = send_at_s + self.args.seconds
        signal.signal(STOP_SIGNAL, self._stop)
        listener = threading.Thread(target=self._poll)
        listener.start()
        while send_at_s < self.end_s:
            self.producer.produce(self.args.topic, record, on_delivery=self._on_delivery)
            send_at_s += len(record) / self.args.bytes_per_s
            time.sleep(max(0.0, send_at_s - time.monotonic()))
        self.has_ended = True
        listener.join()
        self.producer.purge()
        self.producer.flush(10)
        return self.figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.neighbours", description="One paced producer.")
    for name in ("bootstrap", "topic", "client-id"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("bytes-per-s", "record-bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    print(json.dumps(_Producer(parser.parse_args()).run()))


if __name__ == "__main__":
    main()
