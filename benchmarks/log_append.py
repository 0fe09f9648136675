"""Cost of an append and of a read to the broker, without sockets: microseconds of CPU per batch and CPU seconds per GB.

    python -m benchmarks.log_append [--directory D]

Compiled modules are measured if they exist (`make native`); PENSTOCK_NATIVE=0 measures the Python sources. An append
does not yield: its cost is the time for which one batch blocks the broker's loop.

Every row appends one kind of batch repeatedly through `Partition.append` and reports the least CPU time of several
rounds. "write" is a plain `os.write` of the same bytes, measured the same way: the difference is the cost of our code.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from benchmarks.compiled import MODULES
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import compression
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.walk import check_fields, check_lengths

ROUNDS = 12
ROUND_SECONDS = 0.02
CALLS_PER_CLOCK_READ = 8
NOW_MS = 1_700_000_000_000
CLIENT_OFFSET = bytes(8)  # a client always sends base offset 0; an append overwrites it with the assigned offset


def least_us(action: Callable[[], object]) -> float:
    """Returns the least CPU microseconds of one call over several rounds, because the machine is shared."""
    best = float("inf")
    for _ in range(ROUNDS):
        calls = 0
        started = time.process_time()
        while (elapsed := time.process_time() - started) < ROUND_SECONDS:
            for _ in range(CALLS_PER_CLOCK_READ):
                action()
            calls += CALLS_PER_CLOCK_READ
        best = min(best, elapsed / calls * 1e6)
    return best


def batch_of(count: int, value_bytes: int, *, codec: int = 0, spread: bool = False, **fields: int) -> bytearray:
    """Returns a batch of `count` records of `value_bytes` (with `spread`, of half to one and a half times that)."""
    source = random.Random(7)
    sizes = [source.randint(value_bytes // 2, value_bytes * 3 // 2) if spread else value_bytes for _ in range(count)]
    text = b'{"order":"%d","state":"paid","amount":12.50,"note":"' % source.randrange(10**9)
    values = [(text * (size // len(text) + 1))[:size] for size in sizes]
    records = [Record(NOW_MS + number // 10, None, value) for number, value in enumerate(values)]
    return build_batch(records, codec=codec, **fields)


def bench_append(partition: Partition, label: str, batch: bytearray, payload_bytes: int, plain_fd: int) -> None:
    """Prints the cost of an append of this batch, and of a plain write of its bytes to `plain_fd`."""
    buffer = memoryview(batch)

    def append() -> None:
        buffer[:8] = CLIENT_OFFSET
        result = partition.append(buffer, NOW_MS, acks=1, produce_version=9)
        assert result.error_code == 0, result

    def write() -> None:
        os.write(plain_fd, buffer)

    append_us, write_us = least_us(append), least_us(write)
    os.ftruncate(plain_fd, 0)
    cpu_s_per_gb = append_us / payload_bytes * 1e3
    print(
        f"append {label:36} {append_us:9.2f} us   write {write_us:8.2f}   ours {append_us - write_us:8.2f}   "
        f"{cpu_s_per_gb:6.3f} CPU-s/GB"
    )


def bench_idempotent(partition: Partition, batch: bytearray) -> None:
    """Appends as the Java client and librdkafka do by default: a producer id and growing sequences. Each batch
    gets a new CRC, whose cost is subtracted.
    """
    from brokers.engine.records.batch import write_crc

    buffer = memoryview(batch)
    count = int.from_bytes(batch[57:61], "big")
    sequence = 0

    def prepare() -> None:
        nonlocal sequence
        buffer[:8] = CLIENT_OFFSET
        buffer[53:57] = sequence.to_bytes(4, "big")
        write_crc(buffer)
        sequence = (sequence + count) % 2**31

    def append() -> None:
        prepare()
        result = partition.append(buffer, NOW_MS, acks=1, produce_version=9)
        assert result.error_code == 0, result

    append_and_prepare_us = least_us(append)
    append_us = append_and_prepare_us - least_us(prepare)
    print(f"append {'1 x 100 B, idempotent':34} {append_us:9.2f} us   (without the client's CRC)")


def bench_reads(partition: Partition) -> None:
    """Prints the cost of a read at the tail and at random offsets."""
    end = partition.log_end_offset
    source = random.Random(1)

    def read_tail() -> None:
        result = partition.read(end - 1, 1 << 20, min_one_batch=True)
        assert result.slice is not None
        result.slice.release()

    def read_random_offset() -> None:
        result = partition.read(source.randrange(end), 1 << 20, min_one_batch=True)
        assert result.slice is not None
        result.slice.release()

    tail_us, random_us = least_us(read_tail), least_us(read_random_offset)
    print(f"read   tail {tail_us:8.2f} us   random offset, cut at 1 MB {random_us:8.2f} us")


def skip_one_by_one(data: bytes, count: int) -> None:
    """Steps over the records one by one, without the shortcut for runs of equal lengths: the reference cost."""
    position = skipped_count = 0
    end = len(data)
    while position < end:
        first = data[position]
        if first < 0x80:
            position += (first >> 1) + 1
        else:
            position += ((first & 0x7F | data[position + 1] << 7) >> 1) + 2
        skipped_count += 1
    assert position == end
    assert skipped_count == count


def bench_walks() -> None:
    """Prints the cost of checking the records of a batch, in nanoseconds per record."""
    for label, batch in (
        ("9000 x 100 B, one size", batch_of(9_000, 100)),
        ("9000 x 100 B, mixed sizes", batch_of(9_000, 100, spread=True)),
        ("140 x 100 B, one size", batch_of(140, 100)),
        ("140 x 100 B, mixed sizes", batch_of(140, 100, spread=True)),
        ("15 x 1 KB, one size", batch_of(15, 1_000)),
        ("4 x 1 KB, one size", batch_of(4, 1_000)),
    ):
        block = bytes(batch[61:])
        count = int.from_bytes(batch[57:61], "big")
        lengths_ns = least_us(lambda block=block, count=count: check_lengths(block, count)) * 1e3 / count
        one_by_one_ns = least_us(lambda block=block, count=count: skip_one_by_one(block, count)) * 1e3 / count
        fields_ns = least_us(lambda block=block, count=count: check_fields(block, count)) * 1e3 / count
        print(
            f"walk   {label:34} lengths {lengths_ns:7.1f} ns/record   one by one {one_by_one_ns:7.1f}   "
            f"all fields {fields_ns:7.1f}"
        )


def bench_idle(table: PartitionTable, partitions: int) -> None:
    """Measures the creation of partitions, and the memory of an idle one."""
    table.become_leader("warm.up", 0, bytes(16), 0, {}, now_ms=NOW_MS)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(partitions):
        table.become_leader(f"ins-{number:08d}.orders", 0, bytes(16), 0, {}, now_ms=NOW_MS)
    partition_bytes = (tracemalloc.get_traced_memory()[0] - before) / partitions
    tracemalloc.stop()
    started = time.perf_counter()
    for number in range(partitions):
        table.become_leader(f"ins-{number:08d}.other", 0, bytes(16), 0, {}, now_ms=NOW_MS)
    creation_us = (time.perf_counter() - started) / partitions * 1e6
    print(
        f"idle   {partition_bytes / 1024:6.2f} KB a partition, {len(table.files)} descriptors, "
        f"{creation_us:7.1f} us to create one"
    )


def main(directory: Path) -> None:
    print(f"{MODULES} modules, python {sys.version.split()[0]}, {os.cpu_count()} cores, CPU time, best of {ROUNDS}")
    table = PartitionTable(StorageSettings(roots=(directory,), broker_id=0, cluster_id="benchmark"))
    table.recover(NOW_MS)
    plain_fd = os.open(directory / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    cases = [
        ("1 x 100 B", batch_of(1, 100), 100),
        ("140 x 100 B (16 KB)", batch_of(140, 100), 14_000),
        ("140 x 100 B, mixed sizes", batch_of(140, 100, spread=True), 14_000),
        ("15 x 1 KB (16 KB)", batch_of(15, 1_000), 15_000),
        ("960 x 1 KB (1 MB)", batch_of(960, 1_000), 960_000),
        ("9000 x 100 B (1 MB)", batch_of(9_000, 100), 900_000),
        ("9000 x 100 B, mixed sizes", batch_of(9_000, 100, spread=True), 900_000),
    ]
    for name, codec in list(compression.NAMES.items())[1:]:
        cases.append((f"140 x 100 B, {name}", batch_of(140, 100, codec=codec), 14_000))
        cases.append((f"9000 x 100 B, {name}", batch_of(9_000, 100, codec=codec), 900_000))
        cases.append((f"9000 x 100 B, mixed sizes, {name}", batch_of(9_000, 100, spread=True, codec=codec), 900_000))
    every_field = {"message.timestamp.after.max.ms": "3600000"}
    cases.append(("9000 x 100 B, every field checked", batch_of(9_000, 100), 900_000))
    for number, (label, batch, payload) in enumerate(cases):
        config = every_field if "every field" in label else {}
        partition = table.become_leader("bench", number, bytes(16), 0, config, now_ms=NOW_MS)
        bench_append(partition, label, batch, payload, plain_fd)
        if number == 1:
            bench_reads(partition)
        table.delete("bench", number, now_ms=NOW_MS - 10**9)
        table.maintain(NOW_MS)
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    bench_idempotent(table.become_leader("bench", 99, bytes(16), 0, {}, now_ms=NOW_MS), batch_of(1, 100, **fields))
    bench_walks()
    bench_idle(table, 1_000)
    os.close(plain_fd)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary directory)")
    chosen = parser.parse_args().directory
    if chosen is not None:
        main(chosen)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
