"""CPU time of the pipeline's processes, Java included, on an idle product.

  python -m benchmarks.pipeline_at_rest [--minutes 5] [--http-port 21999 --port-base 22000]

The product has its demo instance, with a topic (so that there are levels to report each minute), and no clients. It
settles for a minute, and is then measured. The output is one JSON line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from benchmarks import environment
from benchmarks.product import CLONE

SETTLING_S = 60
READY_S = 180


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--http-port", type=int, default=21_999)
    parser.add_argument("--port-base", type=int, default=22_000)
    args = parser.parse_args()
    print(environment.line(), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        directory = Path(scratch)
        ready_file = directory / "ready.json"
        with (directory / "up.log").open("wb") as log:
            supervisor = subprocess.Popen(
                [
                    sys.executable, str(CLONE / "manage.py"), "up", "--state-dir", str(directory / "state"),
                    "--http-port", str(args.http_port), "--port-base", str(args.port_base),
                    "--ready-file", str(ready_file),
                ],
                stdout=log, stderr=log, cwd=CLONE,
            )  # fmt: skip
        try:
            deadline_s = time.monotonic() + READY_S
            while not ready_file.exists():
                if supervisor.poll() is not None or time.monotonic() > deadline_s:
                    raise SystemExit((directory / "up.log").read_text()[-3_000:])
                time.sleep(0.5)
            make_topic(json.loads(ready_file.read_text()))
            time.sleep(SETTLING_S)
            cpu_before_s, started_s = cpu_s(supervisor.pid), time.monotonic()
            time.sleep(args.minutes * 60)
            took_s, cpu_used_s = time.monotonic() - started_s, cpu_s(supervisor.pid) - cpu_before_s
            names = sorted({process.name() for process in pipeline_processes(supervisor.pid)})
            run_count = (directory / "state" / "logs" / "pipeline.log").read_text().count("usage.applied")
            figures = {
                "benchmark": "pipeline at rest", "seconds": round(took_s), "cpu_s": round(cpu_used_s, 2),
                "percent_of_a_core": round(100 * cpu_used_s / took_s, 2), "processes": names,
                "rss_mb": round(sum(process.memory_info().rss for process in pipeline_processes(supervisor.pid)) / 1e6),
                "runs_with_records": run_count,
            }  # fmt: skip
            print(json.dumps(figures), flush=True)
        finally:
            supervisor.terminate()
            supervisor.wait(60)


def make_topic(ready: dict[str, Any]) -> None:
    """Creates a topic of the demo instance; `ready` is the content of the product's ready file."""
    request = urllib.request.Request(
        f"{ready['api_url'].rstrip('/')}/instances/{ready['instance']['id']}/topics",
        method="POST",
        data=json.dumps({"name": "orders", "partitions": 3, "replication_factor": 3}).encode(),
        headers={"Authorization": f"Bearer {ready['tenant']['token']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def pipeline_processes(supervisor: int) -> list[psutil.Process]:
    """Returns the processes of the pipeline's worker."""
    children = psutil.Process(supervisor).children(recursive=True)
    workers = [process for process in children if "pipeline@penstock" in process.cmdline()]
    return list(
        {process.pid: process for worker in workers for process in (worker, *worker.children(recursive=True))}.values()
    )


def cpu_s(supervisor: int) -> float:
    """Returns the CPU seconds of the pipeline so far, those of ended processes included."""
    total_s = 0.0
    for process in pipeline_processes(supervisor):
        times = process.cpu_times()
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


if __name__ == "__main__":
    main()
