"""Topics with known records, archives of them, and the expected content of their files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from django.utils import timezone
from pyspark.sql import SparkSession

from archives import job, running, services
from archives.files import TIMESTAMP_MS
from archives.models import Archive, ArchiveFile
from archives.placing import UNDATED
from archives.records import SUM_MODULUS, Records
from instances.models import Instance
from tenants.actors import member_actor
from tests.testkit.api_cases import owner_of
from tests.testkit.engine import eventually

INSTANCE = "ins-archived"
# Of the 14th of March 2026, 10:59.
BEFORE_ELEVEN_MS = int(datetime(2026, 3, 14, 10, 59, tzinfo=UTC).timestamp()) * 1_000

Record = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Sender:
    """A producer that keeps accepted records: (partition, offset, timestamp in ms, key, value, headers)."""

    bootstrap: str
    topic: str
    records: list[Record]
    codec: str = "lz4"

    def send(
        self, count: int, producer: Producer | None = None, *, keeps: bool = True, flushes: bool = True, **options: Any
    ) -> None:
        mine = producer or Producer({"bootstrap.servers": self.bootstrap, "compression.type": self.codec})

        def accepted(number: int, failure: Any, message: Any) -> None:
            assert failure is None, failure
            if keeps:
                at_ms = self.timestamp_ms(number, **options)
                self.records.append((message.partition(), message.offset(), at_ms, *self.content(number)))

        for number in range(count):
            key, value, headers = self.content(number)
            mine.produce(
                self.topic, value, key, number % 3, on_delivery=partial(accepted, number),
                timestamp=self.timestamp_ms(number, **options), headers=list(headers),
            )  # fmt: skip
        assert not flushes or mine.flush(30) == 0

    @staticmethod
    def timestamp_ms(number: int, *, first_ms: int = BEFORE_ELEVEN_MS) -> int:
        """Returns a timestamp; successive ones are half a minute apart and go back and forth over an hour's end."""
        return first_ms + (number % 7) * 30_000

    @staticmethod
    def content(number: int) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        key = None if number % 5 == 0 else b"\xffkey-%d" % number
        value = None if number % 11 == 0 else b"\x00value" * (number % 90)
        return key, value, (("trace", b"\xfe%d" % number), ("nothing", None)) if number % 3 else ()


def make_archive(instance: Instance, topic: str, **given: Any) -> Archive:
    acting = member_actor(owner_of(instance.tenant))
    return services.create(acting=acting, instance=instance, topic=topic, url="file:lake", **given)


def run(archive: Archive, spark: SparkSession, **options: Any) -> job.ArchiveRunReport:
    return running.run_one(lambda: spark, Archive.objects.get(pk=archive.pk), timezone.now(), **options)


def folder_of(archive: Archive, root: Path) -> Path:
    return root / archive.tenant_id / "lake" / archive.pk / archive.topic


def table_of(archive: Archive, root: Path) -> pa.Table:
    """Returns all rows in the folder, read as the documentation says."""
    found = ds.dataset(folder_of(archive, root), format="parquet", partitioning="hive")
    if UNDATED.path in "".join(found.files) and TIMESTAMP_MS not in found.schema.names:
        found = found.replace_schema(found.schema.append(pa.field(TIMESTAMP_MS, pa.int64())))
    return found.to_table()


def records_of(table: pa.Table) -> list[Record]:
    rows = table.to_pylist()
    return sorted(
        (
            row["partition"], row["offset"], at_ms_of(row), row["key"], row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"]),
        )
        for row in rows
    )  # fmt: skip


def at_ms_of(row: dict[str, Any]) -> int:
    """Returns the timestamp as it was written, for files without a date."""
    if row.get(TIMESTAMP_MS) is not None:
        return int(row[TIMESTAMP_MS])
    return round(row["timestamp"].timestamp() * 1_000)


def content_sum(records: list[Record]) -> int:
    columns = Records()
    for _, offset, at_ms, key, value, headers in records:
        columns.append(offset, at_ms, key, value, headers)
    return columns.content_sum()


def assert_holds(archive: Archive, root: Path, records: list[Record]) -> None:
    """Asserts that the files, and their rows in the database, have exactly these records."""
    found = records_of(table_of(archive, root)) if records else []
    assert [row[:2] for row in found] == sorted(row[:2] for row in records)
    assert found == sorted(records)
    files = ArchiveFile.objects.filter(archive=archive)
    assert sum(each.rows for each in files) == len(records)
    assert sum(each.content_sum for each in files) % SUM_MODULUS == content_sum(records)
    folder = folder_of(archive, root)
    on_disk = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
    assert on_disk == sorted(each.path for each in files)
    assert all((folder / each.path).stat().st_size == each.bytes for each in files)


def run_here(archive: Archive) -> job.ArchiveRunReport:
    session: Any = InThisProcess()
    return running.run_one(lambda: session, Archive.objects.get(pk=archive.pk), timezone.now())


class InThisProcess:
    """A run's session without Spark: it executes tasks in this process."""

    def __init__(self, tasks: Any = None) -> None:
        self.tasks = tasks

    @property
    def sparkContext(self) -> InThisProcess:
        return self

    @property
    def defaultParallelism(self) -> int:
        return 1

    def parallelize(self, ranges: list[Any], _count: int) -> InThisProcess:
        return InThisProcess(ranges)

    def map(self, task: Any) -> InThisProcess:
        return InThisProcess([task(each) for each in self.tasks])

    def collect(self) -> list[Any]:
        return self.tasks


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    wanted = [TopicPartition(topic, partition, offset) for partition in range(3)]
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.delete_records(wanted).values():
        future.result(30)


def make_anew(bootstrap: str, topic: str, partitions: int) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics([topic])[topic].result(30)

    def is_made() -> bool:
        new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
        failure = client.create_topics([new])[topic].exception(30)
        return failure is None

    eventually(is_made, "the topic is made anew")
