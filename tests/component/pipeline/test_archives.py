"""Archives with a real broker and a real Spark: each committed record once, after a kill at any point."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from django.db import connection
from django.utils import timezone
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow import parquet
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession
from werkzeug.serving import make_server

from archives import limits, reading, running, selectors, services
from archives.models import Archive, ArchiveFile, ArchivePartition
from archives.placing import UNDATED
from archives.plan import Range, TaskPace
from brokers.engine.records.builder import Record, build_batch
from config.embedded.java import Java
from config.environment import BASE_DIR
from instances.models import Instance
from tenants.actors import member_actor
from tests.component.pipeline.archived import (
    BEFORE_ELEVEN_MS,
    INSTANCE,
    InThisProcess,
    Sender,
    assert_holds,
    delete_before,
    folder_of,
    make_anew,
    make_archive,
    records_of,
    run,
    run_here,
    table_of,
)
from tests.testkit.api_cases import owner_of
from tests.testkit.engine import EngineCluster
from tests.testkit.records import produce as produce_batch
from tests.testkit.tls import make_certificate
from tests.testkit.wire import WireClient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600), pytest.mark.usefixtures("root")]

RUN_TIMEOUT_S = 180
MS_PER_HOUR = 3_600_000


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
    assert (report.records, report.is_caught_up, report.error) == (700, True, "")
    assert_holds(archive, root, sender.records)
    table = table_of(archive, root)
    folders = zip(table["date"].to_pylist(), table["hour"].to_pylist(), strict=True)
    assert {(str(day), int(hour)) for day, hour in folders} == {("2026-03-14", 10), ("2026-03-14", 11)}
    again = run(archive, spark)
    assert (again.records, again.files, again.is_caught_up) == (0, 0, True)
    sender.send(50)
    assert run(archive, spark).records == 50
    assert_holds(archive, root, sender.records)
    archive.refresh_from_db()
    assert archive.next_run_at > timezone.now() and not archive.error


def test_a_driver_that_is_killed_between_files_and_commit_loses_and_repeats_nothing(
    instance: Instance, sender: Sender, spark: SparkSession, java: Java, root: Path, tmp_path: Path, settings: Any
) -> None:
    """BAT-3, BAT-4: killed after writing files, with more records behind them, and during the transaction."""
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
    assert run(archive, spark).is_caught_up
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
    assert run(archive, spark).is_caught_up
    assert_holds(archive, root, [record for record in sender.records if record[1] >= 10])
    assert [row.missed_offsets for row in ArchivePartition.objects.filter(archive=archive)] == [10, 10, 10]


def test_a_gap_is_reported_and_nothing_is_skipped_unless_the_archive_is_to_skip(
    instance: Instance, sender: Sender, spark: SparkSession, bootstrap: str, root: Path
) -> None:
    """BAT-6."""
    archive = make_archive(instance, sender.topic)
    sender.send(90)
    assert run(archive, spark).is_caught_up
    sender.send(60)
    delete_before(bootstrap, sender.topic, 40)
    report = run(archive, spark)
    assert (report.records, report.is_caught_up) == (0, False)
    assert "10 offsets were deleted" in report.error
    assert {row.next_offset for row in ArchivePartition.objects.filter(archive=archive)} == {30}
    services.change(acting=member_actor(owner_of(instance.tenant)), archive=archive, changes={"on_gap": "skip"})
    assert run(archive, spark).is_caught_up
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
    assert run(archive, spark).is_caught_up
    assert_holds(archive, root, sender.records)
    before = list(sender.records)
    producer.begin_transaction()
    sender.send(30, producer)
    assert run(archive, spark).is_caught_up, "an open transaction is behind the end"
    assert_holds(archive, root, before)
    producer.commit_transaction(30)
    assert run(archive, spark).is_caught_up
    assert_holds(archive, root, sender.records)


def test_records_without_an_hour_are_kept_in_a_folder_of_their_own(
    instance: Instance, sender: Sender, spark: SparkSession, root: Path
) -> None:
    """Without a timestamp, before 1970, after 9999, and with the largest timestamp."""
    archive = make_archive(instance, sender.topic, on_bad_record="fail")
    sender.send(3)
    for at_ms in (-1, -86_400_000, 253_402_300_800_000, 2**63 - 200_000):
        sender.send(1, first_ms=at_ms)
    sender.send(3)
    report = run(archive, spark)
    assert (report.records, report.is_caught_up, report.error) == (10, True, "")
    assert_holds(archive, root, sender.records)
    undated = folder_of(archive, root) / UNDATED.path
    rows = [row for file in undated.glob("*.parquet") for row in parquet.read_table(file).to_pylist()]
    assert [row["timestamp"] for row in rows] == [None] * 4
    assert {row["timestamp_ms"] for row in rows} == {-1, -86_400_000, 253_402_300_800_000, 2**63 - 200_000}
    frame = spark.read.parquet(str(folder_of(archive, root)))
    assert frame.count() == 10 and frame.where("date = '0001-01-01' AND hour = -1").count() == 4
    assert len(frame.select("timestamp").collect()) == 10, "whatever was written, readers can read it"


def test_very_many_hours_large_files_and_long_backlogs_are_cut_and_nothing_is_lost(
    instance: Instance, sender: Sender, root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks run in this process, so that their limits can be small."""
    monkeypatch.setattr(limits, "RECORDS_PER_TASK_MAX", 40)
    monkeypatch.setattr(limits, "OPEN_FILES_MAX", 2)
    monkeypatch.setattr(limits, "OWN_FILE_BYTES_MIN", 1)
    monkeypatch.setattr(limits, "FILE_BYTES_MAX", 2_000)
    monkeypatch.setattr(limits, "BUFFERED_BYTES_MAX", 500)
    archive = make_archive(instance, sender.topic)
    for hour in range(5):
        sender.send(60, first_ms=BEFORE_ELEVEN_MS + hour * MS_PER_HOUR)
    runs = 0
    while not (report := run_here(archive)).is_caught_up:
        assert report.records and not report.error
        runs += 1
    assert runs >= 2
    assert_holds(archive, root, sender.records)


def test_records_of_a_year_come_in_few_files_and_in_one_run(
    instance: Instance, sender: Sender, spark: SparkSession, root: Path
) -> None:
    """5,000 records over 8,760 hours, unordered."""
    archive = make_archive(instance, sender.topic)
    drawn = random.Random(7)
    producer = Producer({"bootstrap.servers": sender.bootstrap, "compression.type": "lz4"})
    for _ in range(5_000):
        sender.send(1, producer, first_ms=BEFORE_ELEVEN_MS - drawn.randrange(8_760) * MS_PER_HOUR, flushes=False)
    assert producer.flush(30) == 0
    began_s = time.monotonic()
    report = run_here(archive)
    assert (report.records, report.is_caught_up, report.error) == (5_000, True, "")
    assert time.monotonic() - began_s < 60
    assert report.files <= 3 * limits.OPEN_FILES_MAX
    assert_holds(archive, root, sender.records)
    assert spark.read.parquet(str(folder_of(archive, root))).where("timestamp >= '2026-01-01'").count() == sum(
        record[2] >= datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000 for record in sender.records
    )


def test_progress_is_of_a_topic_and_not_of_its_name(
    instance: Instance, sender: Sender, bootstrap: str, root: Path
) -> None:
    """The topic is deleted and created again, with more records than were archived of the old one, and another
    partition.
    """
    archive = make_archive(instance, sender.topic)
    sender.send(99)
    assert run_here(archive).is_caught_up
    sender.send(30, keeps=False)
    old = list(sender.records)
    make_anew(bootstrap, sender.topic, 4)
    sender.records.clear()
    sender.send(150)

    report = run_here(archive)

    assert (report.records, report.is_caught_up) == (0, False) and "made again" in report.error
    assert selectors.progress_of(archive).lag == 150
    assert [row.lag for row in archive.partitions.all()] == [50, 50, 50, 0]
    assert_holds(archive, root, old)
    acting = member_actor(owner_of(instance.tenant))
    services.change(acting=acting, archive=Archive.objects.get(pk=archive.pk), changes={"on_gap": "skip"})
    report = run_here(archive)
    assert (report.records, report.is_caught_up, report.error) == (150, True, "")
    assert_holds(archive, root, [*old, *sender.records])
    assert selectors.progress_of(archive).lag == 0
    sender.send(30)
    assert run_here(archive).records == 30
    assert_holds(archive, root, [*old, *sender.records])


def test_unarchived_records_of_a_deleted_topic_are_counted_as_missed(
    instance: Instance, sender: Sender, bootstrap: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECORDS_PER_TASK_MAX", 10)
    archive = make_archive(instance, sender.topic, on_gap="skip")
    sender.send(60)
    assert run_here(archive).records == 30
    old = [record for record in sender.records if record[1] < 10]
    make_anew(bootstrap, sender.topic, 3)
    sender.records.clear()
    sender.send(24)
    assert run_here(archive).is_caught_up
    assert_holds(archive, root, [*old, *sender.records])
    assert [row.missed_offsets for row in archive.partitions.all()] == [10, 10, 10]


def test_a_topic_that_is_made_anew_while_it_is_read_is_no_continuation_of_the_old_one(
    instance: Instance, sender: Sender, bootstrap: str, root: Path
) -> None:
    archive = make_archive(instance, sender.topic, on_gap="skip")
    sender.send(60)

    def make_it_anew(point: str) -> None:
        if point == "written":
            make_anew(bootstrap, sender.topic, 3)

    session: Any = InThisProcess()
    report = running.run_one(lambda: session, archive, timezone.now(), at_point=make_it_anew)
    assert "made anew" in report.error and not ArchiveFile.objects.exists()
    sender.records.clear()
    sender.send(90)
    assert run_here(archive).is_caught_up
    assert_holds(archive, root, sender.records)


def test_header_names_that_are_not_utf_8_are_archived(
    instance: Instance, sender: Sender, bootstrap: str, spark: SparkSession, root: Path
) -> None:
    """The records around them too; also by Spark's tasks, which call librdkafka themselves."""
    archive = make_archive(instance, sender.topic, on_bad_record="fail")
    producer = Producer({"bootstrap.servers": bootstrap})
    sender.send(30)
    produce_raw(bootstrap, sender.topic, [
        [(b"\xff\xfename", b"one"), (b"plain", b"\x00"), (b"\xed\xa0\x80", None)], [("größe".encode(), b"")],
        [(b"\xc3", b"two")],
    ])  # fmt: skip
    sender.send(30, producer)
    report = run(archive, spark)
    assert (report.records, report.is_caught_up, report.error) == (63, True, "")
    found = {row["value"]: row["headers"] for row in table_of(archive, root).to_pylist()}
    assert [(each["key"], each["value"]) for each in found[b"raw-0"]] == [
        ("\\xff\\xfename", b"one"), ("plain", b"\x00"), ("\\xed\\xa0\\x80", None),
    ]  # fmt: skip
    assert [(each["key"], each["value"]) for each in found[b"raw-1"]] == [("größe", b"")]
    assert [(each["key"], each["value"]) for each in found[b"raw-2"]] == [("\\xc3", b"two")]


class RawName(bytes):
    """A header name that is not text, for a builder of batches that encodes names."""

    def encode(self) -> bytes:
        return bytes(self)


def produce_raw(bootstrap: str, topic: str, headers: list[list[tuple[bytes, bytes | None]]]) -> None:
    """Produces records `raw-0`, … to partition 0 with these headers, whose names no Python client can send."""
    named: Any = [tuple((RawName(name), value) for name, value in each) for each in headers]
    batch = build_batch([
        Record(BEFORE_ELEVEN_MS, b"key", b"raw-%d" % number, headers=each) for number, each in enumerate(named)
    ])  # fmt: skip

    async def produce() -> None:
        client = await WireClient.connect(int(bootstrap.rpartition(":")[2]))
        answer = await produce_batch(client, topic, bytes(batch))
        assert answer.error_code == 0, answer
        await client.close()

    asyncio.run(produce())


@pytest.fixture()
def s3(tmp_path: Path, settings: Any) -> Iterator[int]:
    """Port of an S3 server over TLS with the bucket `acme-lake`."""
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
    """A name may resolve to another address later: it is checked when it is connected to."""
    archive = make_s3_archive(instance, sender.topic, s3)
    sender.send(1)
    store = replace(running.store_of(archive), private=())
    pace = TaskPace(deadline_s=time.time() + limits.TASKS_S)
    result = reading.archive_range(running.source_of(archive), store, pace, Range(partition=0, start=0, stop=1))
    assert "cannot be written to" in result.error and not result.files


def seconds_until_caught_up(archive: Archive, within_s: float = 120) -> float:
    began_s = time.monotonic()
    while not (report := run_here(archive)).is_caught_up:
        assert time.monotonic() - began_s < within_s, report
    return time.monotonic() - began_s


def test_an_archive_reads_as_a_client_that_the_instance_can_throttle(
    instance: Instance, sender: Sender, cluster: EngineCluster
) -> None:
    """BAT-8: the client's quota applies, and a throttled run ends with what it has."""
    archive = make_archive(instance, sender.topic)
    sender.codec = "none"
    sender.send(3_000)
    free_s = seconds_until_caught_up(archive)
    ArchiveFile.objects.all().delete()
    ArchivePartition.objects.all().delete()
    size = sum(len(record[4] or b"") for record in sender.records)
    cluster.set_quota(INSTANCE, {"consumer_byte_rate": str(size // 9)}, user=None, client_id=reading.CLIENT_ID)
    assert seconds_until_caught_up(archive) > free_s + 2
