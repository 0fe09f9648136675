"""A pipeline run in a process of its own, which ends with SIGKILL at a named point of the run.

python -m tests.component.pipeline.driver SETTINGS.json POINT

Spark is started first; the run begins with a line on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from billing.lake.address import open_lake
from billing.pipeline import job, spark
from billing.pipeline.cluster import Cluster


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    deadly = sys.argv[2]

    def at_point(point: str) -> None:
        if point == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def session():
        return spark.session(master="local[2]", local_dir=given["local_dir"])

    session()
    sys.stdin.readline()
    while not job.run(
        session, Cluster(**given["cluster"]), given["dsn"], lake=open_lake(given["lake"]), at_point=at_point
    ).caught_up:
        pass


if __name__ == "__main__":
    main()
