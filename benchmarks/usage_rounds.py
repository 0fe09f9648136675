"""CPU time of one round of the usage pipeline, by the number of new records: none, twenty, a backlog.

  python -m benchmarks.usage_rounds [--sizes 0,20,2000,100000,1200000] [--repeats 3]

Three brokers store the topic. The product provides database, lake and settings. One JSON line per round: wall-clock
seconds, CPU seconds of the round's process with all its children (Java and Spark's Python workers), whether Java runs,
and whether the bytes are exact. The first round is not counted, because it imports modules. `--warm-spark` starts Spark
beforehand.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Final

from benchmarks import environment
from benchmarks.product import run_in_shell, running
from benchmarks.usage_records import BROKERS
from billing.pipeline import job
from brokers.contract import usage_columns
from brokers.contract.process import CLUSTER_USER
from tests.testkit.engine import EngineCluster
from tests.testkit.own_zookeeper import own_zookeeper

SIZES: Final = "0,20,2000,100000,1200000"

RUN = """
import json, os, time, psutil
from billing import usage_backlog, dsn
from billing.lake.address import open_lake
from billing.models import UsageHour
from billing.pipeline import job
from billing.pipeline.cluster import UsageSource
from benchmarks.usage_records import Reports
from django.conf import settings
from config.embedded.java import find_java
from django.db.models import Sum

os.environ["JAVA_HOME"] = str(find_java(settings.STATE_DIR / "java").spark_home)
cluster = UsageSource(cluster_id="bench", bootstrap={bootstrap!r}, username={user!r}, password={secret!r})
reports = Reports(cluster.bootstrap, cluster.login, version={record_version})
this_process = psutil.Process()
found_rounds = []

def cpu_s():
    total_s = 0.0
    for process in (this_process, *this_process.children(recursive=True)):
        times = process.cpu_times()
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s

def recorded_bytes():
    return UsageHour.objects.filter(instance_id__startswith="ins-0").aggregate(sum=Sum("bytes"))["sum"] or 0

def round_of(size):
    expected = reports.write(size)
    before, records, runs = recorded_bytes(), 0, 0
    cpu, began = cpu_s(), time.monotonic()
    lake = open_lake(settings.LAKE_URL)
    with job.Runs(usage_backlog.spark_session, cluster, dsn.conninfo(), lake=lake) as work:
        while True:
            report = work.run({spark_from_records})
            records, runs = records + report.values, runs + 1
            if report.is_caught_up:
                break
    return {{
        "benchmark": "usage round", "new": size, "records": records, "runs": runs,
        "seconds": round(time.monotonic() - began, 3), "cpu_s": round(cpu_s() - cpu, 3),
        "has_java": any(process.name() == "java" for process in this_process.children(recursive=True)),
        "exact": recorded_bytes() - before == expected,
    }}

if {warm_spark}:
    usage_backlog.spark_session().range(10).count()
    round_of(100_000)
round_of(20)
for size in {sizes}:
    found_rounds += [round_of(size) for _ in range({repeats} if size <= 100_000 else 1)]
print(json.dumps({{"rounds": found_rounds}}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES, help="new records of each round, separated by commas")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of each size up to 100,000")
    parser.add_argument("--warm-spark", action="store_true")
    parser.add_argument("--spark-from-records", type=int, default=job.SPARK_FROM_RECORDS, help="a backlog for Spark")
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
            code = RUN.format(
                bootstrap=f"{settings.internal_host}:{settings.internal_port}", user=CLUSTER_USER, secret=source.secret,
                sizes=[int(size) for size in args.sizes.split(",")], repeats=args.repeats,
                warm_spark=args.warm_spark, spark_from_records=args.spark_from_records,
                record_version=args.record_version,
            )  # fmt: skip
            with running(directory / "state", brokers=1) as product:
                for line in run_in_shell(product, code)["rounds"]:
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
