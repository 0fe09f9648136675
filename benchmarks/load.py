"""CPU time that the server processes spend on the standard loads, driven by librdkafka against any Kafka.

  python -m benchmarks.load --bootstrap HOST:PORT --pids 1,2,3 [--only b,c] [--gb 0.5] [--acks 1] [--rf 1]

  a  produce 100 B records, linger 5 ms        d  consume the records of b, from the page cache
  b  produce 1 KB records, linger 5 ms         e  one 100 B record per request
  c  produce 1 KB records in 16 KB batches     latency  1,000 records of 1 KB per second, for 10 s

A warm-up runs first and is not counted. Each load prints one JSON line: the median of `--rounds` runs, and the least
and the greatest cost. Memory is filled before each of them (`benchmarks.memory`): on a virtual machine whose host
reclaims free memory, the same pages may cost several times as much in one run as in the next. `floor_cpu_s_per_gb` is
the kernel's CPU time for a GB in 16 KB writes without any server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.memory import Filler

PARTITIONS = 3
DELIVERY_TIMEOUT_S = 120
# The floor is the cost of writing this many bytes, in pieces of this size.
FLOOR_BYTES = 1_000_000_000
FLOOR_PIECE_BYTES = 16_384
# Seconds at the start of a paced producer that do not count: connections are made and caches filled.
SETTLING_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLoad:
    """A kind of produce load: `share` of the total volume is sent in records of `record_bytes`; `settings` go to
    librdkafka.
    """

    record_bytes: int
    share: float
    settings: dict[str, Any]


PRODUCE_LOADS = {
    "a": ProduceLoad(record_bytes=100, share=0.4, settings={"linger.ms": 5}),
    "b": ProduceLoad(record_bytes=1024, share=1.0, settings={"linger.ms": 5}),
    "c": ProduceLoad(record_bytes=1024, share=1.0, settings={"linger.ms": 5, "batch.size": 16_384}),
    "e": ProduceLoad(
        record_bytes=100,
        share=0.02,
        settings={"batch.num.messages": 1, "linger.ms": 0, "max.in.flight.requests.per.connection": 5},
    ),
}


@dataclass
class Server:
    """The server's processes, as seen in /proc."""

    pids: list[int]
    processes: list[psutil.Process] = field(init=False)

    def __post_init__(self) -> None:
        self.processes = [psutil.Process(pid) for pid in self.pids]

    def cpu_s(self) -> tuple[float, float]:
        """Returns the CPU seconds so far as (user, system)."""
        times = [process.cpu_times() for process in self.processes]
        return sum(process_times.user for process_times in times), sum(process_times.system for process_times in times)

    def rss_mb(self) -> list[int]:
        return [round(process.memory_info().rss / 1e6) for process in self.processes]


def floor_cpu_s_per_gb() -> float:
    """Returns the kernel's CPU seconds for a GB written to the page cache; the file is deleted afterwards."""
    piece = os.urandom(FLOOR_PIECE_BYTES)
    with tempfile.TemporaryFile(buffering=0) as file:
        before = os.times()
        for _ in range(FLOOR_BYTES // FLOOR_PIECE_BYTES):
            file.write(piece)
        after = os.times()
    return round((after.user + after.system - before.user - before.system) / (FLOOR_BYTES / 1e9), 2)


@dataclass
class Bench:
    """One target and the volume to send to it."""

    conf: dict[str, Any]
    server: Server
    gb: float
    acks: str
    replication_factor: int
    metadata_version: str = field(default_factory=lambda: str(time.time_ns()))

    def topic(self, name: str) -> str:
        """Creates a topic and waits until each of its partitions has a leader."""
        topic = f"bench-{name}-{time.time_ns()}"
        admin = AdminClient(self.conf)
        futures = admin.create_topics([NewTopic(topic, PARTITIONS, self.replication_factor)])
        futures[topic].result(30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
            if len(partitions) == PARTITIONS and all(partition.leader >= 0 for partition in partitions.values()):
                return topic
            time.sleep(0.05)
        raise SystemExit(f"{topic} got no leaders in 30 s")

    def drop(self, topic: str) -> None:
        """Deletes the topic, which frees its memory for the next load."""
        admin = AdminClient(self.conf)
        admin.delete_topics([topic])[topic].result(30)

    def produce(self, topic: str, load: ProduceLoad, total_bytes: int) -> tuple[int, float]:
        """Sends `total_bytes` spread over the partitions; returns (records, seconds until all were acknowledged)."""
        failures: list[Any] = []
        producer = Producer(
            {
                **self.conf,
                "acks": self.acks,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 400_000,
                **load.settings,
            }
        )
        payload = os.urandom(load.record_bytes // 2) + bytes(load.record_bytes - load.record_bytes // 2)
        records = total_bytes // load.record_bytes

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        started_s = time.monotonic()
        for index in range(records):
            # Runs of records go to one partition, so that librdkafka fills its batches; a sample reports its delivery.
            report = on_delivery if index % 997 == 0 else None
            while True:
                try:
                    producer.produce(topic, payload, partition=index // 512 % PARTITIONS, on_delivery=report)
                    break
                except BufferError:
                    producer.poll(0.01)
            if index % 2048 == 0:
                producer.poll(0)
        undelivered = producer.flush(DELIVERY_TIMEOUT_S)
        if undelivered or failures:
            raise SystemExit(f"{topic}: {undelivered} undelivered, sampled failures {failures[:1]}")
        return records, time.monotonic() - started_s

    def consume(self, topic: str, records: int) -> tuple[int, float]:
        """Reads up to `records` from the beginning; returns (records read, seconds)."""
        consumer = Consumer(
            {
                **self.conf,
                "group.id": f"bench-{self.metadata_version}",
                "enable.auto.commit": False,
                "check.crcs": False,
                "queued.max.messages.kbytes": 200_000,
                "fetch.max.bytes": 52_428_800,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        read_count, started_s = 0, time.monotonic()
        while read_count < records and time.monotonic() - started_s < DELIVERY_TIMEOUT_S:
            for message in consumer.consume(10_000, 0.5):
                if message.error():
                    raise KafkaException(message.error())
                read_count += 1
        took_s = time.monotonic() - started_s
        consumer.close()
        return read_count, took_s

    def measure(self, work: Callable[[], tuple[int, float]], record_bytes: int) -> dict[str, Any]:
        """Runs `work` once; returns its figures with the server's CPU time."""
        user_before, system_before = self.server.cpu_s()
        records, took_s = work()
        time.sleep(0.3)  # later work of the server for these records (acks, ticks) belongs to them
        user, system = self.server.cpu_s()
        payload_gb = records * record_bytes / 1e9
        cpu_s = user - user_before + system - system_before
        return {
            "records": records,
            "mb_s": round(payload_gb * 1e3 / took_s, 1),
            "krec_s": round(records / took_s / 1e3, 1),
            "cpu_s_per_gb": round(cpu_s / payload_gb, 3),
            "of_it_user": round((user - user_before) / payload_gb, 3),
            "cpu_us_per_record": round(cpu_s / records * 1e6, 2),
        }

    def latency(self, topic: str, rate: int = 1_000, seconds: int = 10) -> dict[str, Any]:
        """Measures a paced producer and a consumer at the tail: send to acknowledgement, and send to receipt, in ms."""
        acks: list[float] = []
        arrivals: list[float] = []
        done = threading.Event()
        consumer = Consumer({**self.conf, "group.id": f"latency-{self.metadata_version}", "fetch.wait.max.ms": 100,
                             "enable.auto.commit": False})  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        producer = Producer({**self.conf, "acks": self.acks, "linger.ms": 0})

        def receive() -> None:
            while not done.is_set():
                message = consumer.poll(0.1)
                if message is not None and not message.error():
                    arrivals.append((time.time_ns() - int(message.value()[:20])) / 1e6)

        def serve() -> None:
            while not done.is_set():
                producer.poll(0.1)

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                acks.append(message.latency() * 1e3)

        threads = [threading.Thread(target=receive), threading.Thread(target=serve)]
        before = sum(self.server.cpu_s())
        for thread in threads:
            thread.start()
        padding, send_at_s = b"x" * 1004, time.monotonic()
        for index in range(rate * seconds):
            sent_ns = b"%020d" % time.time_ns()
            producer.produce(topic, sent_ns + padding, partition=index % PARTITIONS, on_delivery=on_delivery)
            send_at_s += 1 / rate
            time.sleep(max(0.0, send_at_s - time.monotonic()))
        producer.flush(30)
        time.sleep(0.5)
        done.set()
        for thread in threads:
            thread.join()
        consumer.close()
        skip = rate * SETTLING_S
        return {
            **_percentiles("ack", acks[skip:]),
            **_percentiles("end_to_end", arrivals[skip:]),
            "acknowledged": len(acks),
            "received": len(arrivals),
            "server_cpu_s": round(sum(self.server.cpu_s()) - before, 2),
        }

    def warm_up(self) -> None:
        """Establishes connections and fills caches; not counted."""
        topic = self.topic("warm")
        self.produce(topic, PRODUCE_LOADS["b"], int(0.6e9 * min(1.0, self.gb)))
        self.produce(topic, PRODUCE_LOADS["c"], int(0.3e9 * min(1.0, self.gb)))
        self.drop(topic)

    def run(self, names: list[str], prepare: Callable[[], None]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Runs every load once, each on a topic of its own that is deleted after its last use. `prepare` is called
        before the loads that write.
        """
        written: dict[str, tuple[str, int]] = {}
        for name in names:
            topic = written["b"][0] if name == "d" else self.topic(name)
            if name != "d":
                prepare()
            if name == "latency":
                yield name, self.latency(topic)
            elif name == "d":
                records = written["b"][1]
                yield name, self.measure(lambda t=topic, r=records: self.consume(t, r), 1024)
            else:
                load = PRODUCE_LOADS[name]
                total_bytes = int(self.gb * load.share * 1e9)
                figures = self.measure(lambda t=topic, w=load, b=total_bytes: self.produce(t, w, b), load.record_bytes)
                written[name] = (topic, figures["records"])
                yield name, figures
            if name != "b" or "d" not in names:
                self.drop(topic)


Rounds = dict[str, list[dict[str, Any]]]


def interleaved(benches: dict[str, Bench], names: list[str], rounds: int) -> dict[str, Rounds]:
    """Runs every bench in turn, `rounds` times, so that variations of the machine affect all; returns figures by bench
    and load.
    """
    runs_by_target: dict[str, Rounds] = {target: {} for target in benches}
    for bench in benches.values():
        bench.warm_up()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        filler = Filler(Path(scratch))
        for _ in range(rounds):
            for target, bench in benches.items():
                for name, figures in bench.run(names, filler.fill):
                    runs_by_target[target].setdefault(name, []).append(figures)
    return runs_by_target


def summary(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the median run of a load, with the least and the greatest cost of its runs."""
    key = cost_key(name)
    runs_by_cost = sorted(runs, key=lambda figures: figures[key])
    costs = {f"{key}_least": runs_by_cost[0][key], f"{key}_most": runs_by_cost[-1][key]}
    return {"load": name, **runs_by_cost[len(runs_by_cost) // 2], **costs}


def cost_key(name: str) -> str:
    """Returns the name of the figure that is the cost of a load."""
    return "server_cpu_s" if name == "latency" else "cpu_s_per_gb"


def _percentiles(name: str, values: list[float]) -> dict[str, float | None]:
    if len(values) < 2:
        return {f"{name}_p50_ms": None, f"{name}_p99_ms": None}
    cuts = statistics.quantiles(values, n=100)
    return {f"{name}_p50_ms": round(cuts[49], 3), f"{name}_p99_ms": round(cuts[98], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--pids", required=True, help="process ids of the server, comma separated")
    parser.add_argument("--only", default="a,b,d,c,e,latency")
    parser.add_argument("--gb", type=float, default=1.0, help="payload of load b in GB; the others in proportion")
    parser.add_argument("--rounds", type=int, default=3, help="how often each load is run")
    parser.add_argument("--acks", default="1")
    parser.add_argument("--rf", type=int, default=1, help="replication factor of the topics")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a librdkafka setting")
    args = parser.parse_args()
    bench = Bench(
        conf={"bootstrap.servers": args.bootstrap, **dict(pair.split("=", 1) for pair in args.set)},
        server=Server([int(pid) for pid in args.pids.split(",")]),
        gb=args.gb,
        acks=args.acks,
        replication_factor=args.rf,
    )
    print(json.dumps({"load": "idle", "rss_mb": bench.server.rss_mb(), "floor_cpu_s_per_gb": floor_cpu_s_per_gb()}))
    for name, runs in interleaved({"": bench}, args.only.split(","), args.rounds)[""].items():
        print(json.dumps(summary(name, runs)), flush=True)
    print(json.dumps({"load": "over", "rss_mb": bench.server.rss_mb()}))


if __name__ == "__main__":
    main()
