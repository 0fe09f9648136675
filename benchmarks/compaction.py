"""Cost of log cleaning, and its effect on producers of the same broker.

    python -m benchmarks.compaction [--records 10000000] [--keys 100000] [--rounds 2] [--seconds 60]

One broker process. In every round a compacted topic is filled with keyed records, in batches of 100, and then cleaned.
A separate client process sends 1,000 records of 1 KB per second to another topic throughout. The cleaner is stopped and
continued every few seconds, so that spans alone, beside a process that only occupies one core at the cleaner's
niceness, and beside the cleaner follow each other closely, and variations of the machine affect all. The busy core
shows which part is due to sharing the cores. One JSON line per round, then one line of medians over all spans.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benchmarks import environment, neighbours
from benchmarks.product import Product, bootstrap_of, running
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch, encode_record
from brokers.engine.storage.compaction.worker import NICENESS

BATCH_RECORDS, VALUE_BYTES = 100, 100
FRAMES_IN_FLIGHT = 8
SPAN_S = 3.0
# Time after a change before the span counts.
SETTLING_S = 0.3
STATES = ("alone", "beside_a_busy_core", "while_cleaning")
VICTIM_RECORDS_PER_S, VICTIM_RECORD_BYTES = 1_000, 1_000
SEGMENT_BYTES = 1 << 30
SMALL_SEGMENT_BYTES = 1 << 20
WORKER = "brokers.engine.storage.compaction.worker"
# The cleaner checks for work every 15 s.
CLEANER_TIMEOUT_S = 300.0
OCCUPY_CORE = f"import os\nos.nice({NICENESS})\nwhile True: pass"
CLIENT = b"filler"


# -- filling ----------------------------------------------------------------------------------------------------------


def keyed_batches(records: int, keys: int, now_ms: int) -> Iterator[bytearray]:
    """Yields batches of 100 records of equal size with random keys, at a cost of 0.1 µs per record."""
    placeholder = b"key-########"
    value = (b'{"order":"4711","state":"paid","amount":12.50}' * VALUE_BYTES)[:VALUE_BYTES]
    template_records = [Record(now_ms + at // 10, placeholder, value) for at in range(BATCH_RECORDS)]
    split_records = [
        encode_record(record, at, at // 10).split(placeholder) for at, record in enumerate(template_records)
    ]
    head = build_batch(template_records)[: layout.HEADER_BYTES]
    names = [b"key-%08d" % number for number in range(keys)]
    source = random.Random(7)
    for _ in range(records // BATCH_RECORDS):
        keys_drawn = source.choices(names, k=BATCH_RECORDS)
        data = head + b"".join(
            [
                piece
                for (before, after), key in zip(split_records, keys_drawn, strict=True)
                for piece in (before, key, after)
            ]
        )
        layout.write_crc(data)
        yield data


def produce_frame(topic: str, data: bytes | bytearray) -> bytes:
    """Returns a complete Produce request (version 3, acks=1) for partition 0."""
    name = topic.encode()
    body = b"".join(
        [
            (0).to_bytes(2) + (3).to_bytes(2) + (0).to_bytes(4) + len(CLIENT).to_bytes(2) + CLIENT,
            b"\xff\xff" + (1).to_bytes(2) + (30_000).to_bytes(4),
            (1).to_bytes(4) + len(name).to_bytes(2) + name + (1).to_bytes(4) + (0).to_bytes(4),
            len(data).to_bytes(4) + data,
        ]
    )
    return len(body).to_bytes(4) + body


def fill(bootstrap: str, topic: str, batches: Iterator[bytearray]) -> None:
    """Sends the batches, several in flight. Raises SystemExit if a batch is refused."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:
        while frames := [produce_frame(topic, data) for _, data in zip(range(FRAMES_IN_FLIGHT), batches, strict=False)]:
            connection.sendall(b"".join(frames))
            for _ in frames:
                answer = answers.read(int.from_bytes(answers.read(4)))
                position = 4 + 4 + 2 + len(topic.encode()) + 4 + 4  # correlation id, topics, name, partitions, index
                error = int.from_bytes(answer[position : position + 2], signed=True)
                if error:
                    raise SystemExit(f"a batch was refused with error {error}")


# -- the topic --------------------------------------------------------------------------------------------------------


class CompactedTopic:
    """A topic that is filled immediately and cleaned on request."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "1",  # no log is dirtier than that
        }
        self._admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)

    def fill(self, records: int, keys: int) -> None:
        """Writes `records` records into closed segments, and one batch into the active segment."""
        now_ms = int(time.time() * 1000)
        fill(self.bootstrap, self.name, keyed_batches(records, keys, now_ms))
        self._set("segment.bytes", SMALL_SEGMENT_BYTES)  # the next append rolls the segment
        fill(self.bootstrap, self.name, keyed_batches(BATCH_RECORDS, keys, now_ms))
        self._set("segment.bytes", SEGMENT_BYTES)

    def release(self) -> None:
        """Makes the log eligible for cleaning."""
        self._set("min.cleanable.dirty.ratio", 0.01)

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(30)

    def _set(self, key: str, value: float) -> None:
        entry = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(30)


# -- spans ------------------------------------------------------------------------------------------------------------


class Bench:
    """A running product with one broker, and its log of cleaner runs."""

    def __init__(self, product: Product, state_dir: Path, seconds: float) -> None:
        instance_id = product.create_instance(name="compaction", bandwidth_mb_s=600, storage_gb=100)
        self.bootstrap = bootstrap_of(product.wait_running(instance_id))
        self.seconds = seconds
        (self._broker_pid,) = product.broker_pids()
        self._state_dir = state_dir
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic("steady", 1, 1)])["steady"].result(30)

    def begin_producing(self) -> subprocess.Popen[bytes]:
        """Starts the paced producer."""
        return neighbours.begin(
            self.bootstrap,
            topic="steady",
            client_id="steady",
            bytes_per_s=VICTIM_RECORDS_PER_S * VICTIM_RECORD_BYTES,
            record_bytes=VICTIM_RECORD_BYTES,
            seconds=self.seconds + neighbours.SETTLING_S,
        )

    def cleaner_process(self) -> psutil.Process | None:
        """Returns the cleaner's process, or None if none is running."""
        for child in psutil.Process(self._broker_pid).children():
            try:
                if WORKER in child.cmdline():
                    return child
            except psutil.Error:
                continue  # it ended meanwhile
        return None

    def cleaner_runs(self) -> list[dict[str, Any]]:
        """Returns the cleaner runs so far, as recorded in the broker's log."""
        lines = [line for path in self._state_dir.rglob("broker.log") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines if '"log_cleaned"' in line]


class Span(NamedTuple):
    """A period on the monotonic clock in which the machine was in one of the `STATES`."""

    state: str
    since_s: float
    until_s: float


def percentiles(spans: list[Span], samples: neighbours.Paced) -> dict[str, list[dict[str, float]]]:
    """Returns percentiles of the acknowledgement latencies of each span, by state."""
    percentiles_by_state: dict[str, list[dict[str, float]]] = {state: [] for state in STATES}
    for span in spans:
        latencies = sorted(
            latency_ms
            for acknowledged_s, _, latency_ms in samples.acknowledged
            if span.since_s <= acknowledged_s < span.until_s
        )
        if latencies:
            shares = {"p50_ms": 0.5, "p99_ms": 0.99}
            percentiles_by_state[span.state].append(
                {name: latencies[int(len(latencies) * share)] for name, share in shares.items()}
            )
    return percentiles_by_state


def alternate(worker: psutil.Process, until_s: float) -> list[Span]:
    """Alternates between the states while the cleaner runs; the cleaner is running on return."""
    spans = []
    for state in itertools.cycle(STATES):
        if time.monotonic() + SPAN_S > until_s:
            break
        try:
            worker.resume() if state == "while_cleaning" else worker.suspend()
        except psutil.NoSuchProcess:
            break
        started_s = time.monotonic()
        with occupied_core() if state == "beside_a_busy_core" else nullcontext(), suppress(psutil.TimeoutExpired):
            worker.wait(SPAN_S)
        spans.append(Span(state, started_s + SETTLING_S, time.monotonic()))
    with suppress(psutil.NoSuchProcess):
        worker.resume()
    return spans


@contextmanager
def occupied_core() -> Iterator[None]:
    """Runs a process that occupies one core at the cleaner's niceness."""
    process = subprocess.Popen([sys.executable, "-c", OCCUPY_CORE])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wait_for(probe: Callable[[], Any], condition: str) -> Any:
    """Waits until `probe` returns something true, and returns it. Raises SystemExit after `CLEANER_TIMEOUT_S`."""
    deadline_s = time.monotonic() + CLEANER_TIMEOUT_S
    while not (result := probe()):
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{condition}: not within {CLEANER_TIMEOUT_S:g} s")
        time.sleep(0.02)
    return result


def measure(bench: Bench, number: int, records: int, keys: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Measures one round; returns the cleaner's figures, and the producer's latencies by state."""
    topic = CompactedTopic(bench.bootstrap, f"state-{number}")
    topic.fill(records, keys)
    os.sync()  # dirty pages of the filling belong to none of the spans
    earlier_runs = len(bench.cleaner_runs())
    topic.release()
    worker = wait_for(bench.cleaner_process, "the cleaner takes the log")
    worker.suspend()
    until_s = time.monotonic() + bench.seconds
    producer = bench.begin_producing()
    time.sleep(2 * neighbours.SETTLING_S)  # the producer's start and its first records do not count
    spans = alternate(worker, until_s)
    latencies = percentiles(spans, neighbours.finish(producer))
    run = wait_for(lambda: bench.cleaner_runs()[earlier_runs:], "the broker tells of the run")[0]
    topic.delete()
    cleaner = {
        "cpu_s": run["cpu_s"],
        "cpu_s_per_million": run["cpu_s"] / (run["records_kept"] + run["records_dropped"]) * 1e6,
        "read_bytes": run["io_bytes"] - run["bytes_after"],
        "written_bytes": run["bytes_after"],
        "records_kept": run["records_kept"],
        "records_dropped": run["records_dropped"],
    }
    return cleaner, latencies


def summary(cleaners: list[dict[str, Any]], results: list[dict[str, list[Any]]]) -> dict[str, Any]:
    """Returns the medians over all rounds and spans."""
    spans = {state: [span for by_state in results for span in by_state[state]] for state in STATES}
    if not all(spans.values()):
        raise SystemExit("the cleaning was too short: clean more records")
    percentiles = {state: {"spans": len(figures), **medians(figures)} for state, figures in spans.items()}
    alone = percentiles["alone"]["p99_ms"]
    return {
        **percentiles,
        "p99_while_cleaning_over_alone": round(percentiles["while_cleaning"]["p99_ms"] / alone, 2),
        "p99_busy_core_over_alone": round(percentiles["beside_a_busy_core"]["p99_ms"] / alone, 2),
        "cleaner": medians(cleaners),
    }


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.compaction", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    print(json.dumps({"environment": environment.line()}), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        with running(Path(scratch), brokers=1) as product:
            bench = Bench(product, Path(scratch), args.seconds)
            cleaners, all_latencies = [], []
            for number in range(args.rounds):
                cleaner, latencies = measure(bench, number, args.records, args.keys)
                cleaners.append(cleaner)
                all_latencies.append(latencies)
                print(json.dumps(summary([cleaner], [latencies])), flush=True)
        title = f"cleaning {args.records} records of {args.keys} keys"
        print(json.dumps({"benchmark": title, **summary(cleaners, all_latencies)}), flush=True)


if __name__ == "__main__":
    main()
