"""Time of a broker's start: after a clean stop, after a crash, and after a crash with nothing flushed.

    python -m benchmarks.recovery [--gb 2] [--directory D] [--partitions 4] [--batches "15 KB,1 KB"] [--cold]

Each start is a process of its own that loads the log directory as the broker does. The files are in the page cache if
memory allows; with `--cold` the kernel drops them before each start. Segments have the full size of 1 GB: after a crash
those before the recovery point are trusted, as in Apache Kafka.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.checkpoints import RECOVERY_POINTS
from brokers.engine.storage.directories import CLEAN_SHUTDOWN_FILE

NOW_MS: Final = 1_700_000_000_000
TOPIC: Final = "bench"
VALUE_BYTES: Final = 1_000
# Records per batch, as sent by one busy client, and by many small clients.
BATCH_SIZES: Final = {"15 KB": 15, "1 KB": 1}


def open_table(directory: Path) -> PartitionTable:
    return PartitionTable(StorageSettings(roots=(directory,), broker_id=1, cluster_id="benchmark"))


def write_logs(directory: Path, size_bytes: int, partitions: int, records: int) -> None:
    """Writes logs of `size_bytes` in total, flushed and stopped cleanly."""
    table = open_table(directory)
    table.recover(NOW_MS)
    value = random.Random(7).randbytes(VALUE_BYTES)
    batch = memoryview(build_batch([Record(NOW_MS, None, value)] * records))
    led_partitions = [table.become_leader(TOPIC, index, bytes(16), 0, {}, now_ms=NOW_MS) for index in range(partitions)]
    for partition in led_partitions:
        while partition.size_bytes < size_bytes // partitions:
            batch[:8] = bytes(8)
            assert partition.append(batch, NOW_MS, acks=1, produce_version=9).error_code == 0
    table.close()


def run_start(directory: Path, *, uncached: bool) -> str:
    """Runs one start in a process of its own; returns its line of output."""
    if uncached:
        for file in (path for path in directory.rglob("*") if path.is_file()):
            with file.open("rb+") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, "-m", "benchmarks.recovery", "--load", str(directory)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def load_and_report(directory: Path) -> None:
    """Runs in the process of a start. It ends without a clean stop, and restores the marker of a clean stop if there
    was one.
    """
    was_clean = (directory / CLEAN_SHUTDOWN_FILE).exists()
    table = open_table(directory)
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    report = table.recover(NOW_MS)
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    if was_clean:
        (directory / CLEAN_SHUTDOWN_FILE).touch()
    print(f"{took_s:7.2f} s   {cpu_s:6.2f} CPU-s   {report.scanned_bytes / 1e9:6.2f} GB read and checked")


def measure(directory: Path, label: str, size_bytes: int, partitions: int, records: int, *, uncached: bool) -> None:
    """Builds the logs and prints a line for each kind of start."""
    write_logs(directory, size_bytes, partitions, records)
    segments = len(list(directory.rglob("*.log")))
    title = f"{size_bytes / 1e9:.1f} GB, {partitions} partitions of {segments} segments in all, batches of {label}"
    print(f"{title}: clean stop       {run_start(directory, uncached=uncached)}", flush=True)
    (directory / CLEAN_SHUTDOWN_FILE).unlink()
    print(f"{title}: crash            {run_start(directory, uncached=uncached)}", flush=True)
    (directory / RECOVERY_POINTS).unlink()
    print(f"{title}: nothing flushed  {run_start(directory, uncached=uncached)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=2.0, help="size of the logs together")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batches", default=",".join(BATCH_SIZES), help="which sizes of batches, comma separated")
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary directory)")
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before each start")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    selected = parser.parse_args()
    if selected.load is not None:
        load_and_report(selected.load)
        return
    for label in selected.batches.split(","):
        records = BATCH_SIZES[label]
        with tempfile.TemporaryDirectory(dir=selected.directory) as scratch:
            measure(Path(scratch), label, int(selected.gb * 1e9), selected.partitions, records, uncached=selected.cold)


if __name__ == "__main__":
    main()
