"""How many usage records a second the pipeline works off: from the topic by Spark to minutes, counters and the lake.

  python -m benchmarks.usage_records [--records 2000000] [--rounds 3] [--name-chars 8]

Three brokers have the topic, written beforehand: their reports of two thousand counters each, every ten
seconds. The product gives database, lake and settings, and its own pipeline has next to nothing to do. Each round reads
all of it as another cluster. One JSON line a round: seconds from the first run's begin to the last one's commit on all
processors, those of the processor that Python and Java took together, and whether the bytes are exact. Spark runs
already: its start is told apart.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks import environment
from benchmarks.product import run_in_shell, running
from billing.pipeline.source import consumer_conf
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import DIRECTIONS, USAGE_INTERVAL_MS, USAGE_TOPIC, UsageEvent
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.own_zookeeper import own_zookeeper

BROKERS: Final = 3
COUNTERS: Final = 2_000
BYTES_A_REPORT: Final = 1_234
FIRST_MS: Final = 1_795_000_000_000

RUN = """
import json, os, time, psutil
from billing import catching_up, dsn
from billing.lake.address import open_lake
from billing.models import UsageHour
from billing.pipeline import job
from billing.pipeline.cluster import Cluster
from django.conf import settings
from config.embedded.java import find_java
from django.db.models import Sum

os.environ["JAVA_HOME"] = str(find_java(settings.STATE_DIR / "java").spark_home)
found_rounds = []

def cpu_s():
    own = psutil.Process()
    found = 0.0
    for process in (own, *own.children(recursive=True)):
        times = process.cpu_times()
        found += times.user + times.system + times.children_user + times.children_system
    return found

began = time.monotonic()
session = catching_up.spark_session()
session.range(10).count()
started_s = time.monotonic() - began
for number in range({rounds}):
    cluster = Cluster(cluster_id=f"bench-{{number}}", bootstrap={bootstrap!r}, username={user!r}, password={secret!r})
    instances_before = UsageHour.objects.aggregate(sum=Sum("bytes"))["sum"] or 0
    cpu, began, records, runs = cpu_s(), time.monotonic(), 0, 0
    while True:
        report = job.run(lambda: session, cluster, dsn.conninfo(), lake=open_lake(settings.LAKE_URL))
        records, runs = records + report.records, runs + 1
        if report.caught_up:
            break
    took_s = time.monotonic() - began
    found = UsageHour.objects.aggregate(sum=Sum("bytes"))["sum"] - instances_before
    found_rounds.append({{
        "benchmark": "usage records", "round": number, "records": records, "runs": runs, "seconds": round(took_s, 2),
        "records_s": round(records / took_s), "cpu_s": round(cpu_s() - cpu, 1), "exact": found == {expected},
        "spark_started_s": round(started_s, 1),
    }})
print(json.dumps({{"rounds": found_rounds}}))
"""


def fill(conf: dict[str, Any], records: int, name_chars: int) -> int:
    """Reports of three brokers; the bytes that they come to."""
    client = AdminClient(conf)

    def partitions_made() -> int:
        return len(client.list_topics(USAGE_TOPIC, timeout=30).topics[USAGE_TOPIC].partitions)

    partitions = eventually(partitions_made, "the broker has made the topic")
    producer = Producer({**conf, "linger.ms": 20, "queue.buffering.max.kbytes": 200_000, "compression.type": "lz4"})
    reports = -(-records // (BROKERS * COUNTERS))
    for sequence in range(1, reports + 1):
        for broker in range(BROKERS):
            for counter in range(COUNTERS):
                event = UsageEvent(
                    broker_id=broker + 1, broker_epoch=7, sequence=sequence,
                    at_ms=FIRST_MS + sequence * USAGE_INTERVAL_MS, instance_id=f"ins-{counter % 200:08}",
                    topic=f"orders-{counter % 5}".ljust(name_chars, "x"), user="app".ljust(name_chars, "x"),
                    client_id=f"worker-{counter // 400}".ljust(name_chars, "x"),
                    direction=DIRECTIONS[counter // 200 % 2], bytes=sequence * BYTES_A_REPORT, requests=sequence,
                )  # fmt: skip
                while True:
                    try:
                        producer.produce(USAGE_TOPIC, event.to_json(), partition=broker % partitions)
                        break
                    except BufferError:
                        producer.poll(0.01)
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the topic was not written")
    return reports * BROKERS * COUNTERS * BYTES_A_REPORT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name-chars", type=int, default=8, help="of topics, users and client ids: 249 at most")
    given = parser.parse_args()
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
            expected = fill(_client_conf(bootstrap, login), given.records, given.name_chars)
            code = RUN.format(
                rounds=given.rounds, bootstrap=bootstrap, user=CLUSTER_USER, secret=source.secret, expected=expected
            )
            with running(directory / "state", brokers=1) as product:
                for line in run_in_shell(product, code)["rounds"]:
                    print(json.dumps(line), flush=True)


def _client_conf(bootstrap: str, login: dict[str, str]) -> dict[str, Any]:
    """What opens the internal listener, without what consumers alone have."""
    wanted = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "bootstrap.servers")
    return {name: value for name, value in consumer_conf(bootstrap, login).items() if name in wanted}


if __name__ == "__main__":
    main()
