"""Exchange of a cleaned directory: Apache Kafka's tools read it, its broker goes on cleaning it, and ours
after that.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from brokers.engine.partitions.cleaning import CHECKPOINT
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import batch as layout
from brokers.engine.storage import checkpoints
from config.embedded.process import free_port
from tests.interop import cleaned
from tests.interop.test_log_files import JARS, as_kafka_python_reads
from tests.interop.test_shared_directory import STOP_TIMEOUT_S, listens, publish_topic
from tests.testkit.engine import eventually
from tests.testkit.small_segments import SMALL_SEGMENTS
from tests.unit.brokers.engine.inspect import sample
from tests.unit.brokers.engine.storage.compaction.cleaning import clean
from tests.unit.brokers.engine.storage.logs import reopen

COMPLAINTS = (
    "Mismatches",
    "Non-consecutive",
    "Found timestamp mismatch",
    "out of order",
    "Exception",
    "isvalid: false",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cleaned.build(tmp_path_factory.mktemp("cleaned") / "data")


def test_a_cleaned_directory_holds_what_a_cleaner_can_leave(directory: Path) -> None:
    log, report = reopen(directory, cleaned.SMALL, clean=True)
    headers = [header for segment in log.segments for _, header in segment.headers(0)]
    assert report.clean
    assert any(second.base_offset > first.next_offset for first, second in itertools.pairwise(headers))
    assert any(0 < header.record_count < header.last_offset_delta + 1 and header.codec for header in headers)
    assert {header.codec for header in headers} == {0, 1, 2, 3, 4}
    assert any(header.attributes & layout.DELETE_HORIZON and not header.is_control for header in headers)
    assert any(header.attributes & layout.DELETE_HORIZON and header.is_control for header in headers)
    assert any(header.is_control and not header.attributes & layout.DELETE_HORIZON for header in headers)
    assert [header.producer_id for header in headers if not header.record_count] == [cleaned.IDEMPOTENT_PRODUCER]
    result = cleaned.values(log)
    assert "gone" not in result
    assert (result["k1"], result["k2"], result["t3"], result["codec 4"]) == (None, "again", "again", "3")
    code, rows = sample.run("verify", directory.parent)
    assert (code, sample.findings(rows)) == (0, [])


def test_another_implementation_reads_it_whole(directory: Path) -> None:
    log, _ = reopen(directory, cleaned.SMALL, clean=True)
    ours = [
        (offset, record.timestamp_ms, record.key, record.value, list(record.headers))
        for offset, record in cleaned.records(log)
    ]
    seen = [item for file in sorted(directory.glob("*.log")) for item in as_kafka_python_reads(file.read_bytes())]
    markers = cleaned.markers(log)
    assert [item for item in seen if item[0] not in markers] == ours


def java() -> list[str]:
    """Java with Apache Kafka's classes."""
    jars, program = os.environ.get(JARS), shutil.which("java")
    if not jars or not list(Path(jars).glob("kafka_2.1*.jar")):
        pytest.skip(f"{JARS} names no folder with Apache Kafka's jars")
    if program is None:
        pytest.skip("no Java here")
    return [program, "-Xmx512m", "-cp", f"{jars}/*"]


def dump(files: list[Path], *options: str) -> str:
    """Returns the output of DumpLogSegments."""
    command = [*java(), "kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files))]
    return subprocess.run(command, cwd=files[0].parent, capture_output=True, text=True, check=True).stdout


def test_apache_kafkas_dump_tool_reads_a_cleaned_directory_whole(directory: Path) -> None:
    files = sorted(file for file in directory.iterdir() if re.fullmatch(r"\d{20}\.\w+", file.name))
    text = dump(files, "--deep-iteration", "--print-data-log")
    log, _ = reopen(directory, cleaned.SMALL, clean=True)
    headers = [header for segment in log.segments for _, header in segment.headers(0)]
    batches = re.findall(r"^baseOffset: (\d+) .* count: (\d+) .* isvalid: true$", text, re.MULTILINE)
    assert [(int(base), int(count)) for base, count in batches] == [
        (header.base_offset, header.record_count) for header in headers
    ]
    stamped = re.findall(r"^baseOffset: (\d+) .* deleteHorizonMs: OptionalLong\[(\d+)\] ", text, re.MULTILINE)
    assert {int(base) for base, _ in stamped} == {
        header.base_offset for header in headers if header.attributes & layout.DELETE_HORIZON
    }
    offsets = [int(result) for result in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    records = [offset for offset, _ in cleaned.records(log)]
    assert sorted(offsets) == sorted(records + cleaned.markers(log))
    assert not [complaint for complaint in COMPLAINTS if complaint in text], text


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_apache_kafkas_dump_tool_finds_the_indexes_of_a_cleaned_directory_sane(directory: Path, check: str) -> None:
    files = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    assert any(file.stat().st_size > 50 for file in files)
    text = dump(files, check)
    assert not [complaint for complaint in COMPLAINTS if complaint in text], text
    if check == "--index-sanity-check":
        assert text.count("passed sanity check") == len(files)


@contextmanager
def apache_kafka(tree: str, data: Path) -> Iterator[str]:
    """A broker that compacts what it holds, eagerly; its address. Stopped cleanly at the end."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "broker.id": 1,
        "zookeeper.connect": tree,
        "listeners": f"PLAINTEXT://{address}",
        "log.dirs": data,
        "log.cleanup.policy": "compact",
        "log.segment.bytes": 2_000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.backoff.ms": 100,
        "log.cleaner.dedupe.buffer.size": 2_000_000,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    file = data.with_suffix(".properties")
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with data.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen([*java(), "kafka.Kafka", str(file)], cwd=data, stdout=log, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: listens(address), "Apache Kafka listens", 60)
        yield address
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def served(address: str, count: int) -> list[int]:
    """The offsets that a reader of committed records is given."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    result: list[int] = []

    def all_there() -> bool:
        for message in consumer.consume(1_000, 0.2):
            assert message.error() is None, message.error()
            result.append(message.offset())
        return len(result) >= count

    try:
        eventually(all_there, "Apache Kafka serves what we cleaned", 60)
    finally:
        consumer.close()
    return result


def write_there(address: str) -> None:
    """Records that supersede each other, an aborted and a committed transaction, a delete marker; then some to roll."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "theirs", "linger.ms": 0})
    eventually(lambda: _begun(producer), "Apache Kafka hands out a producer id", 60)
    for commit, value in ((True, b"first"), (False, b"aborted"), (True, b"second")):
        producer.begin_transaction()
        for key in (b"k1", b"theirs"):
            producer.produce("orders", value, key, 0)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "compression.type": "lz4"})
    producer.produce("orders", None, b"k2", 0)
    for number in range(60):
        producer.produce("orders", b"%d" % number * 50, b"filler %d" % (number % 3), 0)
        producer.flush(30)


def _begun(producer: Producer) -> bool:
    try:
        producer.init_transactions(10)
    except KafkaException:
        return False
    return True


def checkpointed(data: Path) -> int:
    return checkpoints.read_offsets(data / CHECKPOINT, data).get(("orders", 0), 0)


def test_apache_kafka_goes_on_cleaning_what_we_cleaned_and_we_what_it_cleaned(
    zookeeper_address: str, tmp_path: Path
) -> None:
    java()
    data = tmp_path / "data"
    log, _ = reopen(cleaned.build(data), cleaned.SMALL, clean=True)
    ours = [offset for offset, _ in cleaned.records(log)]
    # The horizons of our delete markers lie in 2023: Apache Kafka drops them.
    before = {key: value for key, value in cleaned.values(log).items() if value is not None}
    with apache_kafka(publish_topic(zookeeper_address), data) as address:
        assert served(address, len(ours)) == ours
        write_there(address)
        end = log.log_end_offset + 40
        eventually(lambda: checkpointed(data) > end, "Apache Kafka has cleaned the log", 60)

    table = PartitionTable(StorageSettings(roots=(data,), broker_id=1, cluster_id="test", defaults=SMALL_SEGMENTS))
    report = table.recover(time.time_ns() // 1_000_000)
    assert report.truncated_bytes == 0
    partition = table.get("orders", 0)
    assert partition is not None
    theirs = partition.log
    values = {**before, "k1": "second", "theirs": "second", "k2": None}
    for now_ms in (cleaned.NOW_MS, time.time_ns() // 1_000_000 + 10 * 24 * cleaned.HOUR_MS):
        result = cleaned.values(theirs)
        assert {key: value for key, value in result.items() if not key.startswith("filler")} == values
        assert result["filler 2"] == "59" * 50
        if theirs.active.size_bytes:
            theirs.roll(now_ms)
        clean(theirs, now_ms=now_ms)
        theirs.check()
    values = {key: value for key, value in values.items() if value is not None}
    clean(theirs, now_ms=now_ms + cleaned.HOUR_MS)
    result = cleaned.values(theirs)
    assert {key: value for key, value in result.items() if not key.startswith("filler") and value is not None} == values
    table.close()
    code, rows = sample.run("verify", data, "--compacted")
    assert (code, sample.findings(rows)) == (0, [])
