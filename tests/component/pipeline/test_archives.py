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
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.db import connection
from django.utils import timezone
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession
from werkzeug.serving import make_server

from billing.archives import limits, reading, running, services
from billing.archives.plan import Pace, Range
from billing.models import Archive, ArchiveFile, ArchivePartition
from config.embedded.java import Java
from config.environment import BASE_DIR
from instances.models import Instance
from tenants.actors import member_actor
from tests.component.pipeline.archived import (
    BEFORE_ELEVEN_MS,
    INSTANCE,
    Sender,
    assert_holds,
    folder_of,
    make_archive,
    records_of,
    run,
    run_here,
    table_of,
)
from tests.testkit.api_cases import owner_of
from tests.testkit.engine import EngineCluster
from tests.testkit.tls import make_certificate

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
    pace = Pace(ends_s=time.time() + limits.TASKS_S)
    result = reading.archive_range(running.source_of(archive), store, pace, Range(partition=0, start=0, stop=1))
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
