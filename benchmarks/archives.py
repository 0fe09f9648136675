"""Archive of a large topic whose worker is killed meanwhile: whether each record is archived once, and the cost.

  python -m benchmarks.archives [--gb 10] [--kills 2] [--format raw|json]

The product runs as `make run` starts it, with a topic of six partitions and an archive at `file:` that is created by
REST. The pipeline's worker writes it as in operation, and all processes of the worker are killed with SIGKILL when a
third and when two thirds of the rows are archived. Finally all files are read with pyarrow, and the number of rows and
the sum of a hash of the values are compared with those of the producer. One JSON line: MB/s from the archive's creation
to its end, the seconds `down_s` of this time without a working worker, and CPU-seconds of the worker and of the brokers
for each GB of values.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow.dataset as ds
import xxhash
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import environment
from benchmarks.product import Product, bootstrap_of, running

TOPIC: Final = "orders"
PARTITIONS: Final = 6
RECORD_BYTES: Final = 1_000
FIRST_MS: Final = 1_780_000_000_000
# A multiplier that places the noise of successive values far apart.
SCATTER: Final = 2_654_435_761
MODULUS: Final = 2**64
POLL_S: Final = 0.5
TIMEOUT_S: Final = 3_600.0
ROOT_VARIABLE: Final = "PENSTOCK_ARCHIVE_ROOT"
COLUMNS: Final = [{"name": "id", "type": "integer"}, {"name": "text", "type": "string"}]


@dataclass
class CpuTimes:
    """The CPU-seconds of processes that start and end during the measurement."""

    cpu_s_by_process: dict[tuple[int, float], float] = field(default_factory=dict)

    def sample(self, processes: Iterable[psutil.Process]) -> None:
        """Reads the CPU times of the processes that run now."""
        for process in processes:
            try:
                times = process.cpu_times()
                self.cpu_s_by_process[process.pid, process.create_time()] = times.user + times.system
            except psutil.Error:
                continue

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_s_by_process.values())


def value_of(number: int, noise: bytes, *, as_json: bool) -> bytes:
    """Returns a unique value, half of which does not compress."""
    noise_offset = number * SCATTER % (len(noise) - RECORD_BYTES)
    if as_json:
        text = noise[noise_offset : noise_offset + RECORD_BYTES // 4].hex()
        return b'{"id":%d,"text":"%s","more":"%s"}' % (number, text.encode(), b"." * (RECORD_BYTES // 2 - 40))
    return b"%016d" % number + noise[noise_offset : noise_offset + RECORD_BYTES // 2] + b"." * (RECORD_BYTES // 2 - 16)


def fill(bootstrap: str, size_bytes: int, *, as_json: bool) -> tuple[int, int, int]:
    """Produces `size_bytes` of values; returns the number of records, the bytes of their values, and the sum of the
    values' hashes.
    """
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 200_000, "acks": "1",
        "compression.type": "lz4",
    })  # fmt: skip
    noise = os.urandom(1_000_000)
    number = total = sum_of_hashes = 0
    while total < size_bytes:
        value = value_of(number, noise, as_json=as_json)
        while True:
            try:
                producer.produce(
                    TOPIC, value, b"%d" % (number % 1_000), number % PARTITIONS, timestamp=FIRST_MS + number // 50
                )
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
        sum_of_hashes += xxhash.xxh64_intdigest(value)
        number, total = number + 1, total + len(value)
    if producer.flush(120):
        raise SystemExit("the topic was not written")
    return number, total, sum_of_hashes % MODULUS


def pipeline_processes(product: Product) -> list[psutil.Process]:
    """Returns the pipeline worker, its child with the Spark session, Java, and Spark's Python workers."""
    for process in product.supervisor.children():
        try:
            if "pipeline" in process.cmdline():
                return [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return []


def run_archive(product: Product, instance_id: str, records: int, args: argparse.Namespace) -> dict[str, Any]:
    """Creates the archive and waits until it is complete; kills the worker on the way."""
    brokers = [psutil.Process(pid) for pid in product.broker_pids()]
    brokers_before = sum(sum(broker.cpu_times()[:2]) for broker in brokers)
    cpu_times, cpu_times_before = CpuTimes(), CpuTimes()
    cpu_times_before.sample(pipeline_processes(product))
    columns = {"value_format": "json", "value_schema": COLUMNS} if args.format == "json" else {}
    body = {"instance_id": instance_id, "topic": TOPIC, "url": "file:lake", "interval_minutes": 1, **columns}
    archive, started_s = product.call("POST", "/archives", body), time.monotonic()
    kill_at_rows = [records * part // (args.kills + 1) for part in range(1, args.kills + 1)]
    down_s, last_kill = 0.0, None
    while time.monotonic() - started_s < TIMEOUT_S:
        time.sleep(POLL_S)
        processes = pipeline_processes(product)
        cpu_times.sample(processes)
        status = product.call("GET", f"/archives/{archive['id']}")
        archived_rows = sum(partition["next_offset"] for partition in status["partitions"])
        if last_kill is not None and archived_rows > last_kill[1]:
            down_s, last_kill = down_s + time.monotonic() - last_kill[0], None
        if kill_at_rows and archived_rows >= kill_at_rows[0]:
            kill_at_rows.pop(0)
            for process in processes:
                process.kill()
            last_kill = (time.monotonic(), archived_rows)
        elif archived_rows >= records and not any(partition["lag"] for partition in status["partitions"]):
            break
    else:
        raise SystemExit(f"not archived in time: {status}")
    return {
        "archive_id": archive["id"],
        "seconds": time.monotonic() - started_s,
        "down_s": round(down_s, 1),
        "pipeline_cpu_s": cpu_times.cpu_s - cpu_times_before.cpu_s,
        "brokers_cpu_s": sum(sum(broker.cpu_times()[:2]) for broker in brokers) - brokers_before,
    }


def read_back(root: Path, archive_id: str) -> tuple[int, int, int]:
    """Returns the number of rows, the number of files, and the sum of the values' hashes."""
    (folder,) = root.glob(f"*/lake/{archive_id}/{TOPIC}")
    dataset = ds.dataset(folder, format="parquet", partitioning="hive")
    rows = sum_of_hashes = 0
    for batch in dataset.to_batches(columns=["value"]):
        rows += batch.num_rows
        sum_of_hashes += sum(xxhash.xxh64_intdigest(value.as_buffer()) for value in batch.column(0))
    return rows, len(dataset.files), sum_of_hashes % MODULUS


def measure(product: Product, root: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures. Raises `SystemExit` if the files do not contain exactly the produced records."""
    instance_id = product.create_instance(name="archived", bandwidth_mb_s=1_800, storage_gb=100)
    bootstrap = bootstrap_of(product.wait_running(instance_id))
    client = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1"}
    client.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)])[TOPIC].result(30)
    records, size, produced_hashes = fill(bootstrap, int(args.gb * 1e9), as_json=args.format == "json")
    figures = run_archive(product, instance_id, records, args)
    rows, files, read_hashes = read_back(root, figures.pop("archive_id"))
    if (rows, read_hashes) != (records, produced_hashes):
        raise SystemExit(f"{rows} rows of {records} records, hashes {read_hashes} and {produced_hashes}")
    gb = size / 1e9
    return {
        "benchmark": "archive", "format": args.format, "gb": round(gb, 2), "kills": args.kills, "records": records,
        "rows": rows, "equal": True, "files": files, "seconds": round(figures["seconds"], 1),
        "down_s": figures["down_s"], "mb_s": round(gb * 1_000 / figures["seconds"], 1),
        "mb_s_without_down": round(gb * 1_000 / max(0.1, figures["seconds"] - figures["down_s"]), 1),
        "pipeline_cpu_s_per_gb": round(figures["pipeline_cpu_s"] / gb, 1),
        "brokers_cpu_s_per_gb": round(figures["brokers_cpu_s"] / gb, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=10.0, help="values of records to archive")
    parser.add_argument("--kills", type=int, default=2, help="how often the worker is killed on the way")
    parser.add_argument("--format", choices=["raw", "json"], default="raw", help="with columns of JSON, or without any")
    args = parser.parse_args()
    print(environment.line(), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        root = Path(scratch) / "archives"
        os.environ[ROOT_VARIABLE] = str(root)
        with running(Path(scratch) / "state") as product:
            print(json.dumps(measure(product, root, args)), flush=True)


if __name__ == "__main__":
    main()
