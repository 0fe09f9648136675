"""A pipeline run in a process of its own, which ends with SIGKILL at a named point of the run.

python -m tests.component.pipeline.driver SETTINGS.json POINT

All records are read by Spark, which is started first; with `in_process` in the settings there is no Spark. The run
begins with a line on standard input. Says `reading` once tasks of it are active, and in the end how many executors are
there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import structlog
from pyspark import SparkContext

from billing.lake.address import open_lake
from billing.pipeline import job, spark
from billing.pipeline.cluster import UsageSource


def main() -> None:
    # Standard output has what the test waits for.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    given = json.loads(Path(sys.argv[1]).read_text())
    deadly = sys.argv[2]

    def at_point(point: str) -> None:
        if point == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def session():
        return spark.session(master=given.get("master", "local[2]"), local_dir=given["local_dir"])

    in_process = given.get("in_process", False)
    context = None if in_process else session().sparkContext
    sys.stdin.readline()
    if context is not None:
        threading.Thread(target=tell_reading, args=(context,), daemon=True).start()
    lake, cluster = open_lake(given["lake"]), UsageSource(**given["cluster"])
    with job.Runs(session, cluster, given["dsn"], lake=lake, at_point=at_point) as runs:
        while not runs.run(sys.maxsize if in_process else 0).is_caught_up:
            pass
    if context is None:
        return
    # One of them is the driver.
    print("executors", len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1, flush=True)


def tell_reading(context: SparkContext) -> None:
    tracker = context.statusTracker()
    while True:
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        if any(stage is not None and stage.numActiveTasks for stage in stages):
            print("reading", flush=True)
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main()
