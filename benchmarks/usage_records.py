"""Throughput of the pipeline in usage records per second: from the topic to minutes, counters and the lake.

  python -m benchmarks.usage_records [--records 2000000] [--rounds 3] [--name-chars 8] [--spark-from-records 0]
      [--record-version 2]

A usage record is one value of one counter, in either version of the format. Three brokers store the topic, which is
written beforehand: their reports of two thousand counters each, every ten seconds. The product provides database, lake
and settings, and its own pipeline is almost idle. Each round reads the whole topic as another cluster. One JSON line
per round: seconds from the begin of the first run to the commit of the last one on all processors, CPU seconds of
Python and Java together, and whether the bytes are exact. Spark is already running: its start is reported separately.
With `--spark-from-records` above the number of records, Spark processes none of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks import environment
from benchmarks.product import run_in_shell, running
from billing.pipeline.consuming import consumer_conf
from brokers.contract import usage_columns
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import (
    DIRECTIONS,
    USAGE_INTERVAL_MS,
    USAGE_TOPIC,
    CounterValue,
    ReportHead,
    UsageEvent,
)
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.own_zookeeper import own_zookeeper

BROKERS: Final = 3
COUNTERS: Final = 2_000
BYTES_A_REPORT: Final = 1_234

RUN = """
import json, os, time, psutil
from billing import usage_backlog, dsn
from billing.lake.address import open_lake
from billing.models import UsageHour
from billing.pipeline import job
from billing.pipeline.cluster import UsageSource
from django.conf import settings
from config.embedded.java import find_java
from django.db.models import Sum

os.environ["JAVA_HOME"] = str(find_java(settings.STATE_DIR / "java").spark_home)
found_rounds = []

def cpu_s():
    this_process = psutil.Process()
    total_s = 0.0
    for process in (this_process, *this_process.children(recursive=True)):
        times = process.cpu_times()
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s

began = time.monotonic()
if {spark_from_records} <= {records}:
    usage_backlog.spark_session().range(10).count()
started_s = time.monotonic() - began
for number in range({rounds}):
    cluster = UsageSource(
        cluster_id=f"bench-{{number}}", bootstrap={bootstrap!r}, username={user!r}, password={secret!r}
    )
    instances_before = UsageHour.objects.aggregate(sum=Sum("bytes"))["sum"] or 0
    cpu, began, records, runs = cpu_s(), time.monotonic(), 0, 0
    lake = open_lake(settings.LAKE_URL)
    with job.Runs(usage_backlog.spark_session, cluster, dsn.conninfo(), lake=lake) as work:
        while True:
            report = work.run({spark_from_records})
            records, runs = records + report.values, runs + 1
            if report.is_caught_up:
                break
    took_s = time.monotonic() - began
    recorded_bytes = UsageHour.objects.aggregate(sum=Sum("bytes"))["sum"] - instances_before
    found_rounds.append({{
        "benchmark": "usage records", "round": number, "records": records, "runs": runs, "seconds": round(took_s, 2),
        "records_s": round(records / took_s), "cpu_s": round(cpu_s() - cpu, 2),
        "cpu_us_a_record": round((cpu_s() - cpu) * 1e6 / records, 2), "exact": recorded_bytes == {expected},
        "spark_started_s": round(started_s, 1),
    }})
print(json.dumps({{"rounds": found_rounds}}))
"""


class Reports:
    """Reports of three brokers, each in a partition of its own, ten seconds apart and ending now."""

    def __init__(
        self, bootstrap: str, login: dict[str, str], name_chars: int = 8, version: int = usage_columns.VERSION
    ) -> None:
        conf = _client_conf(bootstrap, login)
        client = AdminClient(conf)

        def partitions_made() -> int:
            return len(client.list_topics(USAGE_TOPIC, timeout=30).topics[USAGE_TOPIC].partitions)

        self._partitions = eventually(partitions_made, "the broker has made the topic")
        self._producer = Producer(
            {**conf, "linger.ms": 20, "queue.buffering.max.kbytes": 200_000, "compression.type": "lz4"}
        )
        self._name_chars = name_chars
        self._version = version
        self._sequence = 0
        self._reported_bytes: dict[tuple[int, int], int] = {}

    def write(self, records: int) -> int:
        """Appends `records` records; returns the bytes that they add to the bytes reported before."""
        added_bytes, records_per_round = 0, BROKERS * COUNTERS
        reports = -(-records // records_per_round)
        for number in range(reports):
            self._sequence += 1
            at_ms = int(time.time() * 1_000) - (reports - number) * USAGE_INTERVAL_MS
            record_count = min(records_per_round, records - number * records_per_round)
            for broker in range(BROKERS):
                counters = range((record_count + BROKERS - 1 - broker) // BROKERS)
                added_bytes += self._report(ReportHead(broker + 1, 7, self._sequence, at_ms), counters)
            self._producer.poll(0)
        if self._producer.flush(120):
            raise SystemExit("the topic was not written")
        return added_bytes

    def _report(self, head: ReportHead, counters: range) -> int:
        """Appends the counters of one report; returns the bytes that they add."""
        counter_bytes = self._sequence * BYTES_A_REPORT
        values = [self._value(counter, counter_bytes) for counter in counters]
        if self._version == usage_columns.VERSION:
            part_size = usage_columns.COUNTERS_PER_RECORD_MAX
            parts = [values[start : start + part_size] for start in range(0, len(values), part_size)]
            messages = [usage_columns.to_record(head, part) for part in parts]
        else:
            messages = [UsageEvent.of(head, value).to_json() for value in values]
        for message in messages:
            while True:
                try:
                    self._producer.produce(USAGE_TOPIC, message, partition=(head.broker_id - 1) % self._partitions)
                    break
                except BufferError:
                    self._producer.poll(0.01)
        added_bytes = 0
        for counter in counters:
            added_bytes += counter_bytes - self._reported_bytes.get((head.broker_id, counter), 0)
            self._reported_bytes[head.broker_id, counter] = counter_bytes
        return added_bytes

    def _value(self, counter: int, counter_bytes: int) -> CounterValue:
        return CounterValue(
            instance_id=f"ins-{counter % 200:08}", topic=f"orders-{counter % 5}".ljust(self._name_chars, "x"),
            user="app".ljust(self._name_chars, "x"), client_id=f"worker-{counter // 400}".ljust(self._name_chars, "x"),
            direction=DIRECTIONS[counter // 200 % 2], bytes=counter_bytes, requests=self._sequence,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name-chars", type=int, default=8, help="of topics, users and client ids: 249 at most")
    parser.add_argument("--spark-from-records", type=int, default=0, help="smaller backlogs are worked off without it")
    parser.add_argument("--record-version", type=int, default=usage_columns.VERSION, choices=(1, usage_columns.VERSION))
    args = parser.parse_args()
    print(environment.line(), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        directory = Path(scratch)
        with (
            own_zookeeper(directory / "zookeeper") as zookeeper,
            EngineCluster(zookeeper.address, directory / "engine", size=BROKERS) as source,
        ):
            settings = source.brokers[0].settings
            bootstrap = f"{settings.internal_host}:{settings.internal_port}"
            login = {"username": CLUSTER_USER, "password": source.secret}
            expected = Reports(bootstrap, login, args.name_chars, args.record_version).write(args.records)
            code = RUN.format(
                rounds=args.rounds,
                bootstrap=bootstrap,
                user=CLUSTER_USER,
                secret=source.secret,
                expected=expected,
                records=args.records,
                spark_from_records=args.spark_from_records,
            )
            with running(directory / "state", brokers=1) as product:
                for line in run_in_shell(product, code)["rounds"]:
                    print(json.dumps(line), flush=True)


def _client_conf(bootstrap: str, login: dict[str, str]) -> dict[str, Any]:
    """Returns the settings of a client of the internal listener, without those of consumers only."""
    names = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "bootstrap.servers")
    return {name: value for name, value in consumer_conf(bootstrap, login).items() if name in names}


if __name__ == "__main__":
    main()
