"""Effect of a reader of an old, large log on a producer: reading from the disk, and from memory.

  python -m benchmarks.cold_reads [--gb 5] [--rounds 3] [--mb-s 600] [--free] [--keep]
                                  [--peer HOST:PORT --peer-pid 1 --peer-data DIR]

One broker has a partition of `--gb` in 1 GB segments, and a producer sends 1,000 records of 1 KB per second to another
topic. Spans in turn: the producer alone; beside a reader of the whole log after the kernel dropped it from the page
cache ("cold"); beside a process that reads the dropped files without any broker ("disk": the effect of the machine's
disk); beside the same reader when the log is in the page cache ("warm"). Before spans that read from the disk, memory
is filled with droppable pages (`benchmarks.memory`); `--free` shows the additional cost of page faults on a virtual
machine. The reader is a process of its own that reads batch headers and discards the records
(`benchmarks.passing_reader`), so that almost only the broker competes with the producer; with `--keep` it copies them.

One JSON line per span, with the share of CPU time that the host took from the machine, and one line of medians. With
`--peer` another Kafka (without authentication) has the same spans in turn with ours, at its own speed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import environment, neighbours
from benchmarks.memory import Filler
from benchmarks.neighbours import Paced
from benchmarks.product import CLONE, Product, bootstrap_of, running

ARCHIVE, LIVE = "archive", "live"
RECORD_BYTES: Final = 1_000
RECORDS_PER_S: Final = 1_000
BASELINE_S: Final = 15.0
# Longest run of a producer beside a reader, which is stopped when the reader has finished.
READ_TIMEOUT_S: Final = 120.0
PIECE_BYTES: Final = 1_048_576
SHARES: Final = {"50": 0.5, "99": 0.99, "99_9": 0.999}


@dataclass(frozen=True, slots=True)
class Server:
    """A broker with an archive of `records` records in `files`, indexes included."""

    name: str
    bootstrap: str
    process: psutil.Process
    records: int
    files: list[Path]


def print_figures(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


def fill(bootstrap: str, size_bytes: int) -> int:
    """Writes the archive; returns its number of records."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.kbytes": 200_000})
    value = os.urandom(RECORD_BYTES)
    count = size_bytes // RECORD_BYTES
    for _ in range(count):
        while True:
            try:
                producer.produce(ARCHIVE, value)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("the archive was not written")
    return count


def drop_from_page_cache(files: list[Path]) -> None:
    """Makes the kernel drop the files from the page cache."""
    for file in files:
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_through(files: list[Path]) -> float:
    """Reads the files piece by piece, as `dd` does; returns MB/s."""
    total, started_s = 0, time.monotonic()
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while piece := opened.read(PIECE_BYTES):
                total += len(piece)
    return round(total / 1e6 / (time.monotonic() - started_s))


def spans(server: Server, filler: Filler | None, *, keep: bool) -> Iterator[dict[str, Any]]:
    """Yields the spans alone, cold and warm in turn, so that variations of the machine affect all of them."""

    def consume() -> dict[str, Any]:
        return _run_reader(server.bootstrap, server.records, keep=keep)

    def read_bare() -> dict[str, Any]:
        return _read_without_broker(server.files)

    def make_uncached() -> None:
        drop_from_page_cache(server.files)
        if filler is not None:
            filler.fill()

    yield {"span": "alone", **_measure_alone(server.bootstrap)}
    make_uncached()
    yield {"span": "cold", **_measure_during(server, consume)}
    make_uncached()
    yield {"span": "disk", **_measure_during(server, read_bare)}
    yield {"span": "warm", **_measure_during(server, consume)}


def _begin_producer(bootstrap: str, seconds: float) -> subprocess.Popen[bytes]:
    return neighbours.begin(
        bootstrap, topic=LIVE, client_id=LIVE, bytes_per_s=RECORDS_PER_S * RECORD_BYTES, record_bytes=RECORD_BYTES,
        seconds=seconds,
    )  # fmt: skip


def _measure_alone(bootstrap: str) -> dict[str, Any]:
    result = neighbours.finish(_begin_producer(bootstrap, BASELINE_S))
    started_s = result.acknowledged[0][0] + neighbours.SETTLING_S
    return _latencies(result, started_s, result.acknowledged[-1][0])


def _run_reader(bootstrap: str, records: int, *, keep: bool) -> dict[str, Any]:
    """Runs the reader in a process of its own; returns the figures that it prints."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.passing_reader",
        bootstrap,
        "--topic",
        ARCHIVE,
        "--until",
        str(records),
    ]
    if keep:
        command.append("--keep")
    reader = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=CLONE, timeout=READ_TIMEOUT_S)
    return json.loads(reader.stdout)


def _read_without_broker(files: list[Path]) -> dict[str, Any]:
    started_s = time.monotonic()
    read_through(files)
    return {"began": started_s, "ended": time.monotonic(), "received_bytes": sum(file.stat().st_size for file in files)}


def _measure_during(server: Server, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Measures a producer that starts before the reading and stops after it; counts only the time of the reading."""
    broker = server.process
    producer = _begin_producer(server.bootstrap, READ_TIMEOUT_S)
    time.sleep(2 * neighbours.SETTLING_S)  # the producer's process has started and its connection is established
    disk_before, cpu_before = broker.io_counters().read_bytes, sum(broker.cpu_times()[:2])
    stolen_before = psutil.cpu_times().steal
    try:
        reading = read()
    finally:
        producer.send_signal(neighbours.STOP_SIGNAL)
    stolen_s = psutil.cpu_times().steal - stolen_before
    result, duration_s = neighbours.finish(producer), reading["ended"] - reading["began"]
    return {
        **_latencies(result, reading["began"], reading["ended"]),
        "read_mb_s": round(reading["received_bytes"] / 1e6 / duration_s),
        "server_from_disk_mb": round((broker.io_counters().read_bytes - disk_before) / 1e6),
        "server_cpu_s": round(sum(broker.cpu_times()[:2]) - cpu_before, 2),
        "stolen_share": round(stolen_s / duration_s / psutil.cpu_count(), 3),
    }


def _latencies(samples: Paced, started_s: float, ended_s: float) -> dict[str, Any]:
    latencies_ms = sorted(
        latency_ms for acknowledged_s, _, latency_ms in samples.acknowledged if started_s <= acknowledged_s <= ended_s
    )
    if not latencies_ms or samples.errors:
        raise SystemExit(f"nothing was acknowledged between {started_s} and {ended_s}: {samples.errors[:1]}")
    figures = {
        f"ack_p{name}_ms": round(latencies_ms[int(len(latencies_ms) * share)], 3) for name, share in SHARES.items()
    }
    return {"seconds": round(ended_s - started_s, 1), "acknowledged": len(latencies_ms), **figures}


def medians(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the medians of each kind of span, and the ratios of a cold reader to the others."""
    figures: dict[str, Any] = {
        "benchmark": "produce at 1,000 records of 1 KB a second beside a reader of an old log",
        "server": name,
    }
    for kind in ("alone", "cold", "disk", "warm"):
        for share in SHARES:
            values = sorted(span[f"ack_p{share}_ms"] for span in results if span["span"] == kind)
            figures[f"{kind}_p{share}_ms"] = values[len(values) // 2]
    figures["cold_to_alone_p99"] = round(figures["cold_p99_ms"] / figures["alone_p99_ms"], 2)
    figures["cold_to_disk_p99"] = round(figures["cold_p99_ms"] / figures["disk_p99_ms"], 2)
    figures["cold_to_warm_p99"] = round(figures["cold_p99_ms"] / figures["warm_p99_ms"], 2)
    return figures


def _fill_penstock(product: Product, gb: float, bandwidth_mb_s: int) -> Server:
    instance_id = product.create_instance(name="cold", bandwidth_mb_s=bandwidth_mb_s, storage_gb=100)
    bootstrap = bootstrap_of(product.wait_running(instance_id))
    for topic in (ARCHIVE, LIVE):
        product.call("POST", f"/instances/{instance_id}/topics", {"name": topic, "partitions": 1})
    records = fill(bootstrap, int(gb * 1e9))
    directories = product.state_dir.glob(f"**/{instance_id}.{ARCHIVE}-0")
    process = psutil.Process(product.broker_pids()[0])
    return Server("penstock", bootstrap, process, records, _files(next(directories)))


def _fill_peer(bootstrap: str, pid: int, data: Path, gb: float) -> Server:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for creation in admin.create_topics([NewTopic(name, 1, 1) for name in (ARCHIVE, LIVE)]).values():
        creation.result(30)
    records = fill(bootstrap, int(gb * 1e9))
    return Server("peer", bootstrap, psutil.Process(pid), records, _files(data / f"{ARCHIVE}-0"))


def _files(directory: Path) -> list[Path]:
    """Returns the files that a reader of the log causes to be read."""
    return sorted(path for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))


def measure(args: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-cold-", dir=args.directory) as scratch,
        running(Path(scratch), brokers=1) as product,
    ):
        servers = [_fill_penstock(product, args.gb, args.mb_s)]
        if args.peer:
            servers.append(_fill_peer(args.peer, args.peer_pid, args.peer_data, args.gb))
        for server in servers:
            drop_from_page_cache(server.files)
            size_gb = sum(file.stat().st_size for file in server.files) / 1e9
            print_figures({"server": server.name, "disk_mb_s": read_through(server.files), "archive_gb": size_gb})
        filler = None if args.free else Filler(Path(scratch))
        spans_by_server: dict[str, list[dict[str, Any]]] = {server.name: [] for server in servers}
        for _ in range(args.rounds):
            for server in servers:
                for span in spans(server, filler, keep=args.keep):
                    print_figures({"server": server.name, **span})
                    spans_by_server[server.name].append(span)
        for name, server_spans in spans_by_server.items():
            print_figures(medians(name, server_spans))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=5.0, help="size of the log that is read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb-s", type=int, default=600, help="what the instance has bought: as fast as reading goes")
    parser.add_argument("--free", action="store_true", help="leave free memory free, instead of filling it with pages")
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary directory)")
    parser.add_argument("--peer", help="bootstrap server of another Kafka")
    parser.add_argument("--peer-pid", type=int, help="its broker's process")
    parser.add_argument("--peer-data", type=Path, help="its log directory")
    parser.add_argument("--keep", action="store_true", help="the reader copies the records to its own memory")
    print(environment.line(), flush=True)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
