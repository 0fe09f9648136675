"""A real broker, a real Spark, and the files of an archive: each committed record once, whatever is killed when."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from django.db import connection
from django.utils import timezone
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession
from werkzeug.serving import make_server

from billing.archives import job, limits, reading, running, services
from billing.archives.files import SUM_MODULUS, row_sum
from billing.archives.plan import Range
from billing.models import Archive, ArchiveFile, ArchivePartition
from config.embedded.java import Java
from config.environment import BASE_DIR
from instances.models import Instance
from tenants.actors import member_actor
from tests.testkit.api_cases import make_tenant, owner_of
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_running
from tests.testkit.tls import make_certificate

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

INSTANCE = "ins-archived"
RUN_TIMEOUT_S = 180
MS_PER_HOUR = 3_600_000
# Of the 14th of March 2026, 10:59.
BEFORE_ELEVEN_MS = int(datetime(2026, 3, 14, 10, 59, tzinfo=UTC).timestamp()) * 1_000

Record = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("archived"), size=1) as running_cluster:
        running_cluster.create_instance(INSTANCE)
        yield running_cluster


@pytest.fixture()
def bootstrap(cluster: EngineCluster) -> str:
    return cluster.instances[INSTANCE].bootstrap


@pytest.fixture()
def instance(bootstrap: str) -> Instance:
    made = make_running(make_tenant(), id=INSTANCE)
    made.routes.update(endpoints={"1": bootstrap})
    return made


@pytest.fixture(autouse=True)
def root(settings: Any, tmp_path: Path) -> Path:
    settings.ARCHIVE_ROOT = tmp_path / "archives"
    return settings.ARCHIVE_ROOT


@pytest.fixture()
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Of three partitions, named after the test. Its records are of last March: retention would delete them."""
    name = f"orders-{zlib.crc32(request.node.name.encode())}"
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "-1"})]).values():
        future.result(30)
    return name


@dataclass
class Sender:
    """Produces, and keeps what was accepted: (partition, offset, timestamp in ms, key, value, headers)."""

    bootstrap: str
    topic: str
    records: list[Record]
    codec: str = "lz4"

    def send(self, count: int, producer: Producer | None = None, *, keeps: bool = True, **options: Any) -> None:
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
        assert mine.flush(30) == 0

    @staticmethod
    def timestamp_ms(number: int, *, first_ms: int = BEFORE_ELEVEN_MS) -> int:
        """Half of a minute each: they cross an hour, and go back and forth over it."""
        return first_ms + (number % 7) * 30_000

    @staticmethod
    def content(number: int) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        key = None if number % 5 == 0 else b"\xffkey-%d" % number
        value = None if number % 11 == 0 else b"\x00value" * (number % 90)
        return key, value, (("trace", b"\xfe%d" % number), ("nothing", None)) if number % 3 else ()


@pytest.fixture()
def sender(bootstrap: str, topic: str) -> Sender:
    return Sender(bootstrap, topic, [])


def make_archive(instance: Instance, topic: str, **given: Any) -> Archive:
    acting = member_actor(owner_of(instance.tenant))
    return services.create(acting=acting, instance=instance, topic=topic, url="file:lake", **given)


def run(archive: Archive, spark: SparkSession, **options: Any) -> job.RunReport:
    return running.run_one(lambda: spark, Archive.objects.get(pk=archive.pk), timezone.now(), **options)


def folder_of(archive: Archive, root: Path) -> Path:
    return root / archive.tenant_id / "lake" / archive.pk / archive.topic


def table_of(archive: Archive, root: Path) -> pa.Table:
    """All there is in the folder, as the page says that it is read."""
    return ds.dataset(folder_of(archive, root), format="parquet", partitioning="hive").to_table()


def records_of(table: pa.Table) -> list[Record]:
    rows = table.to_pylist()
    return sorted(
        (
            row["partition"], row["offset"], int(row["timestamp"].timestamp() * 1_000), row["key"], row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"]),
        )
        for row in rows
    )  # fmt: skip


def content_sum(records: list[Record]) -> int:
    return sum(row_sum(offset, at_ms, key, value, headers) for _, offset, at_ms, key, value, headers in records)


def assert_holds(archive: Archive, root: Path, records: list[Record]) -> None:
    """The files that are there, and their rows in the database, say these records and no others."""
    found = records_of(table_of(archive, root)) if records else []
    assert [row[:2] for row in found] == sorted(row[:2] for row in records)
    assert found == sorted(records)
    files = ArchiveFile.objects.filter(archive=archive)
    assert sum(each.rows for each in files) == len(records)
    assert sum(each.content_sum for each in files) % SUM_MODULUS == content_sum(records) % SUM_MODULUS
    folder = folder_of(archive, root)
    on_disk = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
    assert on_disk == sorted(each.path for each in files)
    assert all((folder / each.path).stat().st_size == each.bytes for each in files)


class Driver:
    """Runs of an archive in processes that are killed."""

    def __init__(self, archive: Archive, java: Java, root: Path, directory: Path, secret_key: str) -> None:
        self.settings_file = directory / "driver.json"
        database = {name: connection.settings_dict[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
        self.settings_file.write_text(json.dumps({
            "database": database, "root": str(root), "archive": archive.pk, "secret_key": secret_key,
            "local_dir": str(directory / "spark-of-driver"),
        }))  # fmt: skip
        self.environment = os.environ | {
            "JAVA_HOME": str(java.spark_home), "PYTHONWARNINGS": "default",
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }  # fmt: skip

    def run_and_be_killed(self, point: str) -> None:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.component.pipeline.archive_driver", str(self.settings_file), point],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, cwd=BASE_DIR,
        ) as process:  # fmt: skip
            try:
                _, message = process.communicate(b"\n", timeout=RUN_TIMEOUT_S)
                assert process.returncode == -signal.SIGKILL, message.decode()[-3000:]
            finally:
                process.kill()


def test_every_record_is_archived_once_with_all_it_has(
    instance: Instance, sender: Sender, spark: SparkSession, root: Path
) -> None:
    archive = make_archive(instance, sender.topic)
    sender.send(700)
    report = run(archive, spark)
    assert (report.records, report.caught_up, report.error) == (700, True, "")
    assert_holds(archive, root, sender.records)
    table = table_of(archive, root)
    folders = zip(table["date"].to_pylist(), table["hour"].to_pylist(), strict=True)
    assert {(str(day), int(hour)) for day, hour in folders} == {("2026-03-14", 10), ("2026-03-14", 11)}
    again = run(archive, spark)
    assert (again.records, again.files, again.caught_up) == (0, 0, True)
    sender.send(50)
    assert run(archive, spark).records == 50
    assert_holds(archive, root, sender.records)
    archive.refresh_from_db()
    assert archive.next_run_at > timezone.now() and not archive.error


def test_a_driver_that_is_killed_between_files_and_commit_loses_and_repeats_nothing(
    instance: Instance, sender: Sender, spark: SparkSession, java: Java, root: Path, tmp_path: Path, settings: Any
) -> None:
    """BAT-3, BAT-4. Killed with files written and not committed, with more records behind them, and in the midst of
    the transaction.
    """
    archive = make_archive(instance, sender.topic)
    driver = Driver(archive, java, root, tmp_path, settings.SECRET_KEY)
    sender.send(300)
    driver.run_and_be_killed("written")
    strays = {each.name for each in folder_of(archive, root).rglob("*.parquet")}
    assert strays and not ArchiveFile.objects.exists()
    sender.send(100)
    driver.run_and_be_killed("counted")
    assert not ArchiveFile.objects.exists()
    assert {row.next_offset for row in ArchivePartition.objects.filter(archive=archive)} == {0}
    assert run(archive, spark).caught_up
    assert_holds(archive, root, sender.records)
    assert strays <= {Path(each.path).name for each in ArchiveFile.objects.all()}, "they are written again by name"
    assert run(archive, spark).records == 0


def test_files_of_a_killed_run_whose_records_are_deleted_since_go_before_the_next_try(
    instance: Instance, sender: Sender, spark: SparkSession, bootstrap: str, root: Path
) -> None:
    archive = make_archive(instance, sender.topic, on_gap="skip")
    sender.send(90)

    def die(point: str) -> None:
        if point == "written":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(archive, spark, at_point=die)
    delete_before(bootstrap, sender.topic, 10)
    assert run(archive, spark).caught_up
    assert_holds(archive, root, [record for record in sender.records if record[1] >= 10])
    assert [row.missed_offsets for row in ArchivePartition.objects.filter(archive=archive)] == [10, 10, 10]


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    wanted = [TopicPartition(topic, partition, offset) for partition in range(3)]
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.delete_records(wanted).values():
        future.result(30)


def test_a_gap_is_told_and_nothing_is_skipped_unless_the_archive_is_to_skip(
    instance: Instance, sender: Sender, spark: SparkSession, bootstrap: str, root: Path
) -> None:
    """BAT-6."""
    archive = make_archive(instance, sender.topic)
    sender.send(90)
    assert run(archive, spark).caught_up
    sender.send(60)
    delete_before(bootstrap, sender.topic, 40)
    report = run(archive, spark)
    assert (report.records, report.caught_up) == (0, False)
    assert "10 offsets were deleted" in report.error
    assert {row.next_offset for row in ArchivePartition.objects.filter(archive=archive)} == {30}
    services.change(acting=member_actor(owner_of(instance.tenant)), archive=archive, changes={"on_gap": "skip"})
    assert run(archive, spark).caught_up
    assert_holds(archive, root, [record for record in sender.records if not 30 <= record[1] < 40])


def test_records_of_aborted_and_open_transactions_are_not_archived(
    instance: Instance, sender: Sender, spark: SparkSession, bootstrap: str, root: Path
) -> None:
    archive = make_archive(instance, sender.topic)
    sender.send(30)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "archived"})
    producer.init_transactions(30)
    producer.begin_transaction()
    sender.send(60, producer, keeps=False)
    producer.abort_transaction(30)
    assert run(archive, spark).caught_up
    assert_holds(archive, root, sender.records)
    before = list(sender.records)
    producer.begin_transaction()
    sender.send(30, producer)
    assert run(archive, spark).caught_up, "an open transaction is behind the end"
    assert_holds(archive, root, before)
    producer.commit_transaction(30)
    assert run(archive, spark).caught_up
    assert_holds(archive, root, sender.records)


def test_a_record_whose_timestamp_names_no_hour_is_skipped_and_counted_or_stops_its_partition(
    instance: Instance, sender: Sender, spark: SparkSession, root: Path
) -> None:
    archive = make_archive(instance, sender.topic, on_bad_record="fail")
    sender.send(3)
    sender.send(1, keeps=False, first_ms=253_402_300_800_000)
    sender.send(3)
    report = run(archive, spark)
    assert "names no hour" in report.error and not report.caught_up
    # The other partitions are not held up.
    assert_holds(archive, root, [record for record in sender.records if record[0] != 0])
    services.change(acting=member_actor(owner_of(instance.tenant)), archive=archive, changes={"on_bad_record": "skip"})
    assert run(archive, spark).caught_up
    assert_holds(archive, root, sender.records)
    assert [row.skipped_records for row in ArchivePartition.objects.filter(archive=archive)] == [1, 0, 0]


def test_very_many_hours_large_files_and_long_backlogs_are_cut_and_nothing_is_lost(
    instance: Instance, sender: Sender, root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks run here, so that their limits can be small."""
    monkeypatch.setattr(limits, "RECORDS_PER_TASK_MAX", 40)
    monkeypatch.setattr(limits, "HOURS_PER_TASK_MAX", 2)
    monkeypatch.setattr(limits, "FILE_BYTES_MAX", 2_000)
    monkeypatch.setattr(limits, "BUFFERED_BYTES_MAX", 500)
    archive = make_archive(instance, sender.topic)
    for hour in range(5):
        sender.send(60, first_ms=BEFORE_ELEVEN_MS + hour * MS_PER_HOUR)
    runs = 0
    while not (report := run_here(archive)).caught_up:
        assert report.records and not report.error
        runs += 1
    assert runs >= 3
    assert_holds(archive, root, sender.records)


def run_here(archive: Archive) -> job.RunReport:
    session: Any = InThisProcess()
    return running.run_one(lambda: session, Archive.objects.get(pk=archive.pk), timezone.now())


class InThisProcess:
    """As much of a session as a run asks for, without Spark."""

    def __init__(self, tasks: Any = None) -> None:
        self.tasks = tasks

    @property
    def sparkContext(self) -> InThisProcess:
        return self

    def parallelize(self, ranges: list[Any], _count: int) -> InThisProcess:
        return InThisProcess(ranges)

    def map(self, task: Any) -> InThisProcess:
        return InThisProcess([task(each) for each in self.tasks])

    def collect(self) -> list[Any]:
        return self.tasks


@pytest.fixture()
def s3(tmp_path: Path, settings: Any) -> Iterator[int]:
    """The port of a server that speaks S3 over TLS, with the bucket `acme-lake`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_certificate(tmp_path, "s3"))
    settings.OUTBOUND_CA_FILE = str(tmp_path / "ca.pem")
    settings.OUTBOUND_PRIVATE_ADDRESSES = [ip_network("127.0.0.1/32")]
    server = make_server(
        "127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True, ssl_context=context
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    files = S3FileSystem(
        access_key="AKIDEXAMPLE", secret_key="secret", region="eu-central-1",
        endpoint_override=f"127.0.0.1:{server.port}", scheme="https", tls_ca_file_path=settings.OUTBOUND_CA_FILE,
        allow_bucket_creation=True,
    )  # fmt: skip
    files.create_dir("acme-lake")
    yield server.port
    server.shutdown()
    server.server_close()


def make_s3_archive(instance: Instance, topic: str, port: int) -> Archive:
    acting = member_actor(owner_of(instance.tenant))
    url = f"s3://acme-lake/kafka?region=eu-central-1&endpoint=https://127.0.0.1:{port}"
    return services.create(
        acting=acting, instance=instance, topic=topic, url=url, access_key_id="AKIDEXAMPLE", secret_access_key="secret"
    )


def test_an_archive_in_a_bucket_holds_the_same(
    instance: Instance, sender: Sender, spark: SparkSession, s3: int, settings: Any
) -> None:
    archive = make_s3_archive(instance, sender.topic, s3)
    sender.send(200)
    assert run(archive, spark).error == ""
    files = S3FileSystem(
        access_key="AKIDEXAMPLE", secret_key="secret", region="eu-central-1", endpoint_override=f"127.0.0.1:{s3}",
        tls_ca_file_path=settings.OUTBOUND_CA_FILE,
    )  # fmt: skip
    folder = f"acme-lake/kafka/{archive.pk}/{archive.topic}"
    assert records_of(ds.dataset(folder, filesystem=files, partitioning="hive").to_table()) == sorted(sender.records)


def test_a_bucket_that_has_come_to_lie_inside_our_network_is_not_connected_to(
    instance: Instance, sender: Sender, s3: int
) -> None:
    """What a name means may change after it was named: it is looked at when it is connected to."""
    archive = make_s3_archive(instance, sender.topic, s3)
    sender.send(1)
    store = replace(running.store_of(archive), private=())
    result = reading.archive_range(
        running.source_of(archive), store, Range(partition=0, start=0, stop=1), skips_bad=True
    )  # fmt: skip
    assert "cannot be written to" in result.error and not result.files


def seconds_until_caught_up(archive: Archive, within_s: float = 120) -> float:
    began_s = time.monotonic()
    while not (report := run_here(archive)).caught_up:
        assert time.monotonic() - began_s < within_s, report
    return time.monotonic() - began_s


def test_what_it_reads_is_of_a_client_that_the_instance_can_throttle(
    instance: Instance, sender: Sender, cluster: EngineCluster
) -> None:
    """BAT-8: its quota holds for it, and a run that is throttled ends with what it has."""
    archive = make_archive(instance, sender.topic)
    sender.codec = "none"
    sender.send(3_000)
    free_s = seconds_until_caught_up(archive)
    ArchiveFile.objects.all().delete()
    ArchivePartition.objects.all().delete()
    size = sum(len(record[4] or b"") for record in sender.records)
    cluster.set_quota(INSTANCE, {"consumer_byte_rate": str(size // 9)}, user=None, client_id=reading.CLIENT_ID)
    assert seconds_until_caught_up(archive) > free_s + 2
