"""Our files are Kafka's: other people's record readers and Apache Kafka's own tool read them, and ours reads theirs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.records.builder import read_records
from brokers.engine.storage.log import LogConfig
from tests.unit.brokers.engine.inspect import sample
from tests.unit.brokers.engine.storage.logs import read_all, reopen

JARS = "PENSTOCK_APACHE_KAFKA_JARS"
Seen = list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of several segments, all codecs among its batches."""
    return sample.build(tmp_path_factory.mktemp("ours") / "data")


def as_we_read(directory: Path) -> Seen:
    log, _ = reopen(directory, clean=True)
    return [
        (offset, record.timestamp_ms, record.key, record.value, list(record.headers))
        for offset, record in read_all(log)
    ]


def as_kafka_python_reads(data: bytes) -> Seen:
    from kafka.record import MemoryRecords

    result: Seen = []
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        result += [(item.offset, item.timestamp, item.key, item.value, list(item.headers)) for item in batch]
    return result


def as_aiokafka_reads(data: bytes) -> Seen:
    from aiokafka.record.memory_records import MemoryRecords

    result: Seen = []
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        result += [(item.offset, item.timestamp, item.key, item.value, list(item.headers)) for item in batch]
    return result


@pytest.mark.parametrize("reader", [as_kafka_python_reads, as_aiokafka_reads])
def test_their_readers_read_our_segments_whole(ours: Path, reader: Any) -> None:
    seen: Seen = []
    for file in sorted(ours.glob("*.log")):
        seen += reader(file.read_bytes())
    assert seen == as_we_read(ours)
    assert len(seen) == sum(1 + number % 3 for number in range(sample.BATCHES))


def kafka_python_builder(codec: int) -> Any:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)


def aiokafka_builder(codec: int) -> Any:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)


def their_batch(builder: Any, base_offset: int, records: int) -> bytes:
    """A batch by their builder, given its offset in the log as a broker does."""
    for at in range(records):
        builder.append(at, sample.NOW_MS + base_offset + at, b"k", b"value %d " % at * 9, [("h", b"\x00")])
    data = bytearray(builder.build())
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


@pytest.mark.parametrize("make", [kafka_python_builder, aiokafka_builder])
def test_a_segment_built_by_them_is_recovered_and_served_by_us(tmp_path: Path, make: Any) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    content = b"".join(their_batch(make(codec), number * 3, 3) for number, codec in enumerate((0, 1, 2, 3, 4, 0)))
    (directory / f"{0:020d}.log").write_bytes(content)
    log, report = reopen(directory, LogConfig(index_limits=(100, 10_000)), clean=False)
    assert (report.truncated_bytes, log.log_end_offset) == (0, 18)
    served = log.read(0, 1 << 20, 18, min_one_batch=True)
    assert served is not None
    assert served.read() == content
    served.release()
    assert [offset for offset, _ in read_all(log)] == list(range(18))
    assert read_records(content[: 12 + int.from_bytes(content[8:12], "big")])[0][1].headers == (("h", b"\x00"),)
    log.close()
    code, rows = sample.run("verify", directory)
    assert (code, sample.findings(rows)) == (0, [])


def dump_log_segments(directory: Path, files: list[Path]) -> str:
    """Returns the output of Apache Kafka's own tool."""
    jars = os.environ.get(JARS)
    if not jars or not list(Path(jars).glob("kafka_2.1*.jar")):
        pytest.skip(f"{JARS} names no folder with Apache Kafka's jars")
    java = shutil.which("java")
    if java is None:
        pytest.skip("no Java here")
    command = [java, "-cp", f"{jars}/*", "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log"]
    done = subprocess.run(
        [*command, "--files", ",".join(map(str, files))], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_apache_kafkas_dump_tool_reads_our_directory_whole(ours: Path) -> None:
    files = sorted(file for file in ours.iterdir() if re.fullmatch(r"\d{20}\.\w+", file.name))
    assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".snapshot"}
    text = dump_log_segments(ours, files)
    batches = re.findall(r"^baseOffset: (\d+) .* isvalid: (\w+)$", text, re.MULTILINE)
    assert len(batches) == sample.BATCHES
    assert {valid for _, valid in batches} == {"true"}
    offsets = [int(result) for result in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    assert sorted(offsets) == [offset for offset, *_ in as_we_read(ours)]
    assert text.count("producerId: 7 producerEpoch: 0 coordinatorEpoch: -1") == len(list(ours.glob("*.snapshot")))
    for complaint in ("Mismatches", "Non-consecutive", "Found timestamp mismatch", "out of order", "Exception"):
        assert complaint not in text, text
