"""The loads, driven by librdkafka against any Kafka: what the *server* processes spend on them.

  python -m benchmarks.load --bootstrap HOST:PORT --pids 1,2,3 [--only b,c] [--gb 0.5] [--acks 1] [--rf 1]

  a  produce 100 B records, linger 5 ms        d  consume what b wrote, from the page cache
  b  produce 1 KB records, linger 5 ms         e  one 100 B record per request
  c  produce 1 KB records in 16 KB batches     latency  1,000 records of 1 KB a second, for 10 s

Each load prints one JSON line. A warm-up runs first and is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 3
DELIVERY_TIMEOUT_S = 120
# Where a paced producer's first seconds are left out: connections are made and caches filled.
SETTLING_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLoad:
    """`share` of the wanted volume is sent in records of `record_bytes`; `settings` go to librdkafka."""

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
    """The server's processes, as /proc sees them."""

    pids: list[int]
    processes: list[psutil.Process] = field(init=False)

    def __post_init__(self) -> None:
        self.processes = [psutil.Process(pid) for pid in self.pids]

    def cpu_s(self) -> float:
        times = (process.cpu_times() for process in self.processes)
        return sum(spent.user + spent.system for spent in times)

    def rss_mb(self) -> list[int]:
        return [round(process.memory_info().rss / 1e6) for process in self.processes]


@dataclass
class Bench:
    """One target and how much to send to it."""

    conf: dict[str, Any]
    server: Server
    gb: float
    acks: str
    replication_factor: int
    stamp: str = field(default_factory=lambda: str(time.time_ns()))

    def topic(self, name: str) -> str:
        """Makes a fresh topic and waits until each of its partitions has a leader."""
        topic = f"bench-{name}-{self.stamp}"
        admin = AdminClient(self.conf)
        made = admin.create_topics([NewTopic(topic, PARTITIONS, self.replication_factor)])
        made[topic].result(30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
            if len(partitions) == PARTITIONS and all(p.leader >= 0 for p in partitions.values()):
                return topic
            time.sleep(0.05)
        raise SystemExit(f"{topic} got no leaders in 30 s")

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

        began = time.monotonic()
        for index in range(records):
            # Whole runs go to one partition, so that librdkafka fills its batches; a sample reports its delivery.
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
        return records, time.monotonic() - began

    def consume(self, topic: str, records: int) -> tuple[int, float]:
        """Reads up to `records` from the beginning; returns (records read, seconds)."""
        consumer = Consumer(
            {
                **self.conf,
                "group.id": f"bench-{self.stamp}",
                "enable.auto.commit": False,
                "check.crcs": False,
                "queued.max.messages.kbytes": 200_000,
                "fetch.max.bytes": 52_428_800,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        read, began = 0, time.monotonic()
        while read < records and time.monotonic() - began < DELIVERY_TIMEOUT_S:
            for message in consumer.consume(10_000, 0.5):
                if message.error():
                    raise KafkaException(message.error())
                read += 1
        took = time.monotonic() - began
        consumer.close()
        return read, took

    def measure(self, name: str, work: Callable[[], tuple[int, float]], record_bytes: int) -> dict[str, Any]:
        """Runs `work` and states the server's CPU for it."""
        before = self.server.cpu_s()
        records, took = work()
        time.sleep(0.3)  # what the server still does for these records (acks, ticks) belongs to them
        cpu_s = self.server.cpu_s() - before
        payload_bytes = records * record_bytes
        return {
            "load": name,
            "records": records,
            "mb_s": round(payload_bytes / took / 1e6, 1),
            "krec_s": round(records / took / 1e3, 1),
            "cpu_s_per_gb": round(cpu_s / (payload_bytes / 1e9), 3),
            "cpu_us_per_record": round(cpu_s / records * 1e6, 2),
            "rss_mb": self.server.rss_mb(),
        }

    def latency(self, topic: str, rate: int = 1_000, seconds: int = 10) -> dict[str, Any]:
        """A paced producer and a consumer at the tail: send to acknowledgement, and send to receipt, in ms."""
        acks: list[float] = []
        arrivals: list[float] = []
        done = threading.Event()
        consumer = Consumer({**self.conf, "group.id": f"latency-{self.stamp}", "fetch.wait.max.ms": 100,
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
        before = self.server.cpu_s()
        for thread in threads:
            thread.start()
        pad, due = b"x" * 1004, time.monotonic()
        for index in range(rate * seconds):
            stamp = b"%020d" % time.time_ns()
            producer.produce(topic, stamp + pad, partition=index % PARTITIONS, on_delivery=on_delivery)
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(30)
        time.sleep(0.5)
        done.set()
        for thread in threads:
            thread.join()
        consumer.close()
        skip = rate * SETTLING_S
        return {
            "load": "latency",
            **_percentiles("ack", acks[skip:]),
            **_percentiles("end_to_end", arrivals[skip:]),
            "acknowledged": len(acks),
            "received": len(arrivals),
            "server_cpu_s": round(self.server.cpu_s() - before, 2),
        }

    def run(self, names: list[str]) -> Iterator[dict[str, Any]]:
        """Warms up, then yields one line of figures per load of `names`."""
        yield {"load": "idle", "rss_mb": self.server.rss_mb()}
        warm = self.topic("warm")
        self.produce(warm, PRODUCE_LOADS["b"], int(0.6e9 * min(1.0, self.gb)))
        self.produce(warm, PRODUCE_LOADS["c"], int(0.3e9 * min(1.0, self.gb)))
        written: dict[str, tuple[str, int]] = {}
        for name in names:
            if name == "latency":
                yield self.latency(self.topic(name))
            elif name == "d":
                topic, records = written["b"]
                yield self.measure("d", lambda t=topic, r=records: self.consume(t, r), 1024)
            else:
                load, topic = PRODUCE_LOADS[name], self.topic(name)
                total_bytes = int(self.gb * load.share * 1e9)
                figures = self.measure(
                    name, lambda t=topic, w=load, b=total_bytes: self.produce(t, w, b), load.record_bytes
                )
                written[name] = (topic, figures["records"])
                yield figures


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
    parser.add_argument("--acks", default="1")
    parser.add_argument("--rf", type=int, default=1, help="replication factor of the topics")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a librdkafka setting")
    given = parser.parse_args()
    bench = Bench(
        conf={"bootstrap.servers": given.bootstrap, **dict(pair.split("=", 1) for pair in given.set)},
        server=Server([int(pid) for pid in given.pids.split(",")]),
        gb=given.gb,
        acks=given.acks,
        replication_factor=given.rf,
    )
    for figures in bench.run(given.only.split(",")):
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
