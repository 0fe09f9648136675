"""Merging a day's files of the lake into one, and replaying it: rows per second, and peak memory.

  python -m benchmarks.lake_merge [--rows 5000000] [--files 60] [--instances 1000] [--replay]

Each instance has ten counters, which occur in every file. No product is needed: files are written to a temporary
directory. A busy day of a thousand tenants has 129,600,000 rows, in a file for each minute (`--files 1440`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import django
import pyarrow as pa
import pyarrow.compute as pc

from billing.lake import files, merging
from billing.lake.address import Lake, open_lake

DAY = date(2026, 3, 14)
DAY_BEGINS_MS = 1_773_446_400_000
COUNTERS = 10


def write_files(lake: Lake, rows: int, count: int, instances: int) -> list[Any]:
    """Writes files as the pipeline does; returns their database rows."""
    counters = instances * COUNTERS
    reports = max(1, rows // (counters * count))
    rows_of_files = []
    for number in range(count):
        index = pa.array(range(counters * reports), pa.int64())
        report = pc.divide(index, counters)
        counter = pc.subtract(index, pc.multiply(report, counters))
        instance = pc.divide(counter, COUNTERS)
        topic = pc.subtract(counter, pc.multiply(instance, COUNTERS))
        sequence = pc.add(report, number * reports + 1)
        ones = pa.repeat(pa.scalar(1, pa.int64()), len(index))
        names = pa.array([f"ins-{number:08d}" for number in range(instances)])
        topics = pa.array([f"topic-{number}" for number in range(COUNTERS)])
        columns = {
            "broker_id": ones.cast(pa.int32()), "broker_epoch": ones, "instance_id": names.take(instance),
            "topic": topics.take(topic), "user": pa.repeat("application", len(index)),
            "client_id": pa.repeat("a-client-of-it", len(index)), "direction": pa.repeat("produce", len(index)),
            "sequence": sequence, "at_ms": pc.add(pc.multiply(sequence, 1_000), DAY_BEGINS_MS),
            "bytes": pc.multiply(sequence, 4_096), "requests": sequence, "added_bytes": pc.multiply(ones, 4_096),
            "added_requests": ones,
        }  # fmt: skip
        table = pa.table({name: columns[name] for name in files.COLUMNS})
        written = files.write(lake, "clu-bench", {0: (number, number + 1)}, table)
        rows_of_files += [
            SimpleNamespace(path=file.path, rows=file.rows, added_bytes=file.added_bytes) for file in written
        ]
    return rows_of_files


def measure_merge(url: str, files: list[Any], results: Any) -> None:
    """Merges the files in a process of its own, whose memory is measured."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started_s = time.monotonic()
    written = merging.merge(open_lake(url), "clu-bench", DAY, files)
    took_s = time.monotonic() - started_s
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results.put((written.path,
        {"rows": written.rows, "took_s": round(took_s, 1), "rows_per_s": round(written.rows / took_s),
         "peak_mb": peak_kb // 1024, "before_mb": before_kb // 1024},
    ))  # fmt: skip


def measure_replay(url: str, file: Any, results: Any) -> None:
    """Replays the hours of a merged file of all instances, in a process of its own, whose memory is measured."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from billing.lake import replay

    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started_s = time.monotonic()
    sums = replay.sums_of(open_lake(url), [file], None, replay.MS_PER_HOUR, lambda _rows: None)
    took_s = time.monotonic() - started_s
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results.put(
        {"rows": file.rows, "exact": sum(sums.values()) == file.added_bytes, "took_s": round(took_s, 1),
         "rows_per_s": round(file.rows / took_s), "peak_mb": peak_kb // 1024, "before_mb": before_kb // 1024}
    )  # fmt: skip


def run_in_process(work: Callable[..., None], *arguments: Any) -> Any:
    """Runs `work` in a process of its own and returns its answer. The process is spawned, so that it begins without the
    memory of this one.
    """
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=work, args=(*arguments, results))
    process.start()
    result = results.get()
    process.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--instances", type=int, default=1_000)
    parser.add_argument("--replay", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        url = Path(scratch).as_uri()
        written_files = write_files(open_lake(url), args.rows, args.files, args.instances)
        path, figures = run_in_process(measure_merge, url, written_files)
        print(json.dumps({"benchmark": "a day of the lake merged", "files": len(written_files), **figures}), flush=True)
        if args.replay:
            added = sum(file.added_bytes for file in written_files)
            file = SimpleNamespace(path=path, rows=figures["rows"], added_bytes=added, cluster_id="clu-bench", day=DAY)
            print(json.dumps({"benchmark": "a merged day replayed", **run_in_process(measure_replay, url, file)}))


if __name__ == "__main__":
    main()
