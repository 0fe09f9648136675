"""Values in archives, and reading of topics: as a user over TLS, at a limited rate, past damaged records."""

from __future__ import annotations

import io
import json
import struct
import time
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from django.utils import timezone
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import SparkSession

from archives import job, limits, reading, running
from archives.models import Archive, ArchivePartition, ArchiveState
from brokers.provisioning import topic_documents
from brokers.provisioning.publisher import Publisher
from instances.lifecycle.phases import Phase
from instances.models import DeletedTopic, Instance
from tests.component.pipeline.archived import (
    BEFORE_ELEVEN_MS,
    Sender,
    assert_holds,
    folder_of,
    make_archive,
    run,
    run_here,
    table_of,
)
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.users import alter_users, user_addition

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600), pytest.mark.usefixtures("root")]

COLUMNS = [
    {"name": "id", "type": "integer"}, {"name": "price", "type": "number"}, {"name": "at", "type": "timestamp"},
    {"name": "lines", "type": "json"},
]  # fmt: skip
RECORD = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip


def produce(bootstrap: str, topic: str, values: list[bytes | None], **conf: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **conf})
    for value in values:
        producer.produce(topic, value, b"key", 0, timestamp=BEFORE_ELEVEN_MS)
    assert producer.flush(30) == 0


def avro(row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(RECORD), row)
    return target.getvalue()


def test_json_values_have_columns_that_spark_and_pyarrow_read(
    instance: Instance, bootstrap: str, topic: str, spark: SparkSession, root: Path
) -> None:
    archive = make_archive(instance, topic, value_format="json", value_schema=COLUMNS)
    orders = [{"id": n, "price": n / 4, "at": "2026-03-14T10:00:00Z", "lines": [{"sku": n}]} for n in range(200)]
    unfit = [b"\xff", b"[]", b'{"id": "seven"}', b"[" * 100_000]
    produce(bootstrap, topic, [*(json.dumps(order).encode() for order in orders), *unfit, None])
    report = run(archive, spark)
    assert (report.records, report.is_caught_up, report.error) == (205, True, "")
    rows = sorted(table_of(archive, root).to_pylist(), key=lambda row: row["offset"])
    assert [row["record"]["price"] for row in rows[:200]] == [order["price"] for order in orders]
    assert json.loads(rows[7]["record"]["lines"]) == [{"sku": 7}]
    assert [row["record"] for row in rows[200:]] == [None] * 5, "none fits"
    assert [row["value"] for row in rows[200:]] == [*unfit, None], "their bytes are there"
    assert ArchivePartition.objects.get(archive=archive, partition=0).unfit_values == len(unfit)
    frame = spark.read.parquet(str(folder_of(archive, root)))
    assert frame.where("record.price >= 49.0").count() == 4
    filtered = ds.dataset(folder_of(archive, root), partitioning="hive").to_table(
        filter=ds.field("record", "id") == 12
    )  # fmt: skip
    assert [row["record"]["id"] for row in filtered.to_pylist()] == [12]


@pytest.mark.parametrize("framed", [False, True])
def test_avro_values_have_columns(instance: Instance, bootstrap: str, topic: str, root: Path, framed: bool) -> None:
    value_format = "framed_avro" if framed else "avro"
    archive = make_archive(instance, topic, value_format=value_format, value_schema=RECORD)
    frame = struct.pack(">bI", 0, 41) if framed else b""
    orders = [{"id": n, "price": None if n % 3 else n / 4, "at": BEFORE_ELEVEN_MS + n} for n in range(100)]
    produce(bootstrap, topic, [*(frame + avro(order) for order in orders), b"neither"])
    assert run_here(archive).is_caught_up
    rows = sorted(table_of(archive, root).to_pylist(), key=lambda row: row["offset"])
    assert [row["record"]["price"] for row in rows[:100]] == [order["price"] for order in orders]
    assert [int(row["record"]["at"].timestamp() * 1_000) for row in rows[:100]] == [order["at"] for order in orders]
    assert rows[100]["record"] is None and rows[100]["value"] == b"neither"


def test_an_archive_keeps_its_own_pace(instance: Instance, sender: Sender, root: Path) -> None:
    """It is slower than the instance's limit, and complete in the end."""
    sender.codec = "none"
    sender.send(3_000)
    size = sum(len(each[3] or b"") + len(each[4] or b"") for each in sender.records)
    assert size > 700_000
    archive = make_archive(instance, sender.topic, bytes_per_s_max=size // 4)
    began_s = time.monotonic()
    while not (report := run_here(archive)).is_caught_up:
        assert not report.error
    assert time.monotonic() - began_s > 3
    assert_holds(archive, root, sender.records)


def test_a_record_larger_than_the_pace_makes_the_next_run_wait(
    instance: Instance, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.limits, "TASKS_S", 5.0)
    archive = make_archive(instance, topic, bytes_per_s_max=10_000)
    produce(bootstrap, topic, [b"x" * 900_000] * 3)
    report = run_here(archive)
    assert (report.records, report.error) == (1, "")
    archive.refresh_from_db()
    assert archive.next_run_at and archive.last_run_at
    assert 85 < (archive.next_run_at - archive.last_run_at).total_seconds() < 95


def test_it_reads_as_a_user_by_tls(
    instance: Instance, cluster: EngineCluster, spark: SparkSession, root: Path, settings: Any
) -> None:
    settings.TLS_DIR = cluster.directory
    secured = cluster.create_instance("ins-archivtl", security="sasl_tls")
    alter_users(
        cluster,
        secured,
        user_addition("owner", "owner-secret", superuser=1),
        user_addition("reader", "read-secret", superuser=1),
    )
    conf = {
        "bootstrap.servers": secured.bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "owner", "sasl.password": "owner-secret", "ssl.ca.location": str(cluster.directory / "ca.pem"),
    }  # fmt: skip
    client = AdminClient(conf)
    client.create_topics([NewTopic("secret", 3, 1)])["secret"].result(30)
    sender = Sender(secured.bootstrap, "secret", [])
    sender.send(90, Producer(conf), first_ms=int(time.time() * 1_000) - 300_000)
    instance.routes.update(security="sasl_tls", endpoints={"1": secured.bootstrap})
    wrong = make_archive(instance, "secret", username="reader", password="guessed")
    assert "does not answer" in run(wrong, spark).error
    Archive.objects.filter(pk=wrong.pk).update(state=ArchiveState.DELETING)
    archive = make_archive(instance, "secret", username="reader", password="read-secret")

    def answered() -> job.ArchiveRunReport | None:
        report = run(archive, spark)
        return None if "does not answer" in report.error else report

    # For a while the instance answers an address late from which wrong passwords came.
    report = eventually(answered, "the right password is accepted", 120.0)
    assert (report.records, report.error) == (90, "")
    assert_holds(archive, root, sender.records)


def test_a_damaged_batch_is_skipped_and_counted_or_stops_its_partition(
    instance: Instance, cluster: EngineCluster, bootstrap: str, topic: str, root: Path
) -> None:
    """BAT-5: one byte on the broker's disk is changed, between two valid batches."""
    one_batch = {"linger.ms": 500}
    produce(bootstrap, topic, [b"whole-one"])
    produce(bootstrap, topic, [b"damaged-two", *(b"lost" for _ in range(6))], **one_batch)
    produce(bootstrap, topic, [b"whole-three"])
    found = [each for each in cluster.directory.rglob("*.log") if b"damaged-two" in each.read_bytes()]
    assert len(found) == 1
    content = found[0].read_bytes()
    with found[0].open("r+b") as log:
        log.seek(content.index(b"damaged-two"))
        log.write(b"D")
    strict = make_archive(instance, topic, on_bad_record="fail")
    report = run_here(strict)
    assert "damaged" in report.error and not report.is_caught_up
    Archive.objects.filter(pk=strict.pk).update(state=ArchiveState.DELETING)
    archive = make_archive(instance, topic)
    report = run_here(archive)
    assert (report.records, report.is_caught_up, report.error) == (2, True, "")
    assert {row["value"] for row in table_of(archive, root).to_pylist()} == {b"whole-one", b"whole-three"}
    assert ArchivePartition.objects.get(archive=archive, partition=0).skipped_records == 7


def test_an_archive_ends_with_its_instance_and_its_files_stay(instance: Instance, sender: Sender, root: Path) -> None:
    archive = make_archive(instance, sender.topic)
    sender.send(9)
    assert run_here(archive).is_caught_up
    Instance.objects.filter(pk=instance.pk).update(phase=Phase.DELETING)
    assert "deleting" in run_here(archive).error, "it may be restored"
    Instance.objects.filter(pk=instance.pk).update(phase=Phase.DELETED)
    run_here(archive)
    archive.refresh_from_db()
    assert (archive.state, archive.error) == (ArchiveState.ENDED, "")
    assert_holds(archive, root, sender.records)


def test_an_archive_of_a_deleted_topic_waits_says_so_and_goes_on_when_it_is_restored(
    instance: Instance, cluster: EngineCluster, sender: Sender, root: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": sender.bootstrap})

    def publish(*, is_shown: bool) -> None:
        topic_documents.publish(instance, Publisher(cluster.zookeeper, ""))
        eventually(lambda: (sender.topic in admin.list_topics(timeout=10).topics) == is_shown, "brokers heard of it")

    archive = make_archive(instance, sender.topic)
    sender.send(9)
    assert run_here(archive).is_caught_up
    sender.send(6)
    now = timezone.now()
    row = DeletedTopic.objects.create(
        instance=instance, topic=sender.topic, topic_id=id_of(admin, sender.topic), partitions=3, deleted_at=now,
        expires_at=now + timedelta(days=7),
    )  # fmt: skip
    publish(is_shown=False)
    report = run_here(archive)
    assert "can be restored" in report.error
    archive.refresh_from_db()
    assert (archive.state, archive.error) == (ArchiveState.ACTIVE, report.error), "the page shows both"
    assert archive.next_run_at <= timezone.now() + timedelta(minutes=limits.RETRY_MINUTES)
    assert_holds(archive, root, sender.records[:9])

    row.is_restored = True
    row.save()
    publish(is_shown=True)
    report = run_here(archive)
    assert (report.records, report.is_caught_up, report.error) == (6, True, "")
    assert_holds(archive, root, sender.records)


def id_of(admin: AdminClient, topic: str) -> str:
    given = admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    bits = given.get_most_significant_bits() % 2**64, given.get_least_significant_bits() % 2**64
    return str(uuid.UUID(int=bits[0] << 64 | bits[1]))


def test_partitions_that_had_no_turn_come_first_in_the_next_run(
    instance: Instance, sender: Sender, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends in time, for any number of partitions and any speed of reading."""
    archive = make_archive(instance, sender.topic)
    sender.send(90)
    read: list[int] = []
    archive_range = reading.archive_range

    def first_alone(source: Any, store: Any, pace: Any, wanted: Any) -> Any:
        has_turn = len(read) < runs
        if has_turn:
            read.append(wanted.partition)
        return archive_range(source, store, pace if has_turn else replace(pace, deadline_s=0.0), wanted)

    monkeypatch.setattr(reading, "archive_range", first_alone)
    for runs in range(1, 4):
        assert run_here(archive).is_caught_up == (runs == 3)
    assert sorted(read) == [0, 1, 2]
    assert_holds(archive, root, sender.records)
