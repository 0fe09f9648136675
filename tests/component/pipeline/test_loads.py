"""Archives in a tenant's PostgreSQL: each committed record is one row, after a kill at any point."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from django.db import connection
from django.utils import timezone
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from archives import database, limits, load_job, loading, running, selectors, services
from archives.database import RowBatch
from archives.database_rows import packed_row
from archives.models import Archive, ArchivePartition
from archives.relay import Relay
from config.embedded.postgres import USER, EmbeddedPostgres
from config.environment import BASE_DIR
from instances.models import Instance
from tenants.actors import member_actor
from tests.component.pipeline.archived import (
    BEFORE_ELEVEN_MS,
    InThisProcess,
    Record,
    Sender,
    delete_before,
    make_anew,
    run,
    run_here,
)
from tests.testkit.api_cases import owner_of
from tests.testkit.tenant_database import LOADER, PASSWORD, TenantDatabase, listening_over_tls, make_database
from tests.testkit.tls import make_certificate

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

RUN_TIMEOUT_S = 180
LOOPBACK = ip_network("127.0.0.0/8")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tenant-database")


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres, authority: Path) -> Iterator[TenantDatabase]:
    make_database(postgres)
    with listening_over_tls(postgres, make_certificate(authority, "postgres")) as port:
        yield TenantDatabase(port, postgres.socket_dir)


@pytest.fixture()
def lake(server: TenantDatabase, authority: Path, settings: Any) -> Iterator[TenantDatabase]:
    settings.OUTBOUND_CA_FILE = str(authority / "ca.pem")
    settings.OUTBOUND_PRIVATE_ADDRESSES = [LOOPBACK]
    yield server
    server.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


def make_load(instance: Instance, topic: str, url: str, **given: Any) -> Archive:
    acting = member_actor(owner_of(instance.tenant))
    login = {"database_user": LOADER, "database_password": PASSWORD} | given
    return services.create(acting=acting, instance=instance, topic=topic, url=url, **login)


def loaded(lake: TenantDatabase, table: str = "orders") -> list[Record]:
    """Returns all rows of the table as records."""
    found = lake.rows(
        'SELECT partition, "offset", (extract(epoch FROM timestamp) * 1000)::bigint, timestamp_ms, key, value, headers'
        f' FROM "{table}"'
    )
    return sorted(
        (
            partition, offset, at_ms if undated_ms is None else undated_ms, key, value,
            tuple(
                (each["key"], None if each["value"] is None else base64.b64decode(each["value"])) for each in headers
            ),
        )
        for partition, offset, at_ms, undated_ms, key, value, headers in found
    )  # fmt: skip


def assert_loaded(lake: TenantDatabase, archive: Archive, records: list[Record], table: str = "orders") -> None:
    """Asserts that the table has exactly these records, and that its progress and our copy of it say so."""
    assert loaded(lake, table) == sorted(records)
    counted = "SELECT coalesce(sum(rows), 0)::bigint FROM penstock_loads WHERE table_name = %s"
    assert lake.rows(counted, table) == [(len(records),)]
    progress = "SELECT partition, next_offset, rows FROM penstock_loads WHERE table_name = %s AND topic_id = %s"
    archive.refresh_from_db()
    ours = archive.partitions.values_list("partition", "next_offset", "loaded_rows")
    assert sorted(ours) == sorted(lake.rows(progress, table, archive.topic_id))


def test_every_record_is_loaded_once_with_all_it_has(
    instance: Instance, sender: Sender, lake: TenantDatabase, spark: SparkSession
) -> None:
    """Tasks of Spark load NUL bytes, nulls, headers, and timestamps that no calendar has."""
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(400)
    for at_ms in (-1, -86_400_000, 253_402_300_800_000, 2**63 - 200_000, 1):
        sender.send(1, first_ms=at_ms)
    report = run(archive, spark)
    assert (report.records, report.is_caught_up, report.error) == (405, True, "")
    assert_loaded(lake, archive, sender.records)
    assert (again := run_here(archive)).is_caught_up and again.records == 0
    sender.send(50)
    assert run_here(archive).records == 50
    assert_loaded(lake, archive, sender.records)
    assert selectors.progress_of(archive).rows == 455
    (newest, *_) = lake.rows(selectors.sql_lines(archive))
    assert newest[2] == datetime.fromtimestamp((BEFORE_ELEVEN_MS + 6 * 30_000) / 1_000, UTC)


HEADER_NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
RECORDS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.binary(max_size=100),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(HEADER_NAMES, st.none() | st.binary(max_size=50)), max_size=4).map(tuple),
    ),
    max_size=30,
)


def test_all_bytes_and_times_of_a_record_are_read_back(instance: Instance, lake: TenantDatabase) -> None:
    target = running.database_of(make_load(instance, "orders", lake.url("orders")))
    expected: list[Record] = []

    @settings_of_hypothesis(max_examples=30, deadline=None)
    @given(RECORDS)
    def load(records: list[tuple[Any, ...]]) -> None:
        start = database.prepare_tables(target, "orders", "id", {0: 0}, {})[0].next_offset
        rows = bytearray()
        for offset, record in enumerate(records, start):
            rows += packed_row(b"id", 0, offset, *record)
            expected.append((0, offset, *record))
        stop = start + len(records)
        batch = RowBatch(topic_id="id", partition=0, start=start, next_offset=stop, rows=rows, count=len(records))
        database.load_batch(target, batch, lambda _point: None)

    load()
    assert loaded(lake) == expected
    assert lake.rows("SELECT next_offset, rows FROM penstock_loads") == [(len(expected), len(expected))]


def test_a_process_killed_at_any_point_loses_and_repeats_nothing(
    instance: Instance, sender: Sender, lake: TenantDatabase, tmp_path: Path, settings: Any
) -> None:
    """BAT-3, BAT-4: at each named point, the first, second or third time that it is reached."""
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(600)
    driver = tmp_path / "driver.json"
    database = {name: connection.settings_dict[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
    driver.write_text(json.dumps({
        "database": database, "archive": archive.pk, "secret_key": settings.SECRET_KEY, "batch_records": 20,
        "ca_file": settings.OUTBOUND_CA_FILE,
    }))  # fmt: skip
    points = ["planned:1", *(f"{point}:{count}" for count in (1, 2, 3) for point in loading.POINTS)]
    assert {*load_job.POINTS, *loading.POINTS} == {point.partition(":")[0] for point in points} | {"loaded", "noted"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.component.pipeline.load_driver", str(driver), *points, "loaded:1", "noted:1"],
        stderr=subprocess.PIPE, env=os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}, cwd=BASE_DIR,
        timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert loaded(lake) == sorted(sender.records)
    sender.send(30)
    assert run_here(archive).is_caught_up
    assert_loaded(lake, archive, sender.records)


def test_a_topic_loaded_by_two_archives_is_in_their_table_once(
    instance: Instance, sender: Sender, lake: TenantDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At addresses that are written differently; and an archive that is made again goes on where the table is."""
    monkeypatch.setattr(limits, "BATCH_RECORDS_MAX", 7)
    first = make_load(instance, sender.topic, lake.url("orders"))
    second = make_load(instance, sender.topic, lake.url("orders", schema="public"))
    sender.send(60)
    overtaken: list[str] = []

    def at_point(point: str) -> None:
        if point == "read" and not overtaken:
            overtaken.append(point)
            assert run_here(second).is_caught_up

    session: Any = InThisProcess()
    report = running.run_one(lambda: session, first, timezone.now(), at_point=at_point)
    assert "was changed while" in report.error
    assert loaded(lake) == sorted(sender.records)
    assert run_here(first).is_caught_up
    sender.send(9)
    for archive in (first, second):
        assert run_here(archive).is_caught_up
        assert_loaded(lake, archive, sender.records)


def test_progress_of_a_restored_database_is_its_own(instance: Instance, sender: Sender, lake: TenantDatabase) -> None:
    """A backup has the rows and the offsets of one moment."""
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(30)
    assert run_here(archive).is_caught_up
    lake.execute("CREATE TABLE kept AS TABLE orders", "CREATE TABLE kept_loads AS TABLE penstock_loads")
    sender.send(30)
    assert run_here(archive).is_caught_up
    lake.execute(
        "TRUNCATE orders, penstock_loads",
        "INSERT INTO orders TABLE kept",
        "INSERT INTO penstock_loads TABLE kept_loads",
    )
    assert run_here(archive).records == 30
    assert_loaded(lake, archive, sender.records)


def test_gaps_and_new_topics_are_reported_and_counted_where_they_may_be_skipped(
    instance: Instance, sender: Sender, lake: TenantDatabase, bootstrap: str
) -> None:
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(30)
    assert run_here(archive).is_caught_up
    sender.send(60)
    delete_before(bootstrap, sender.topic, 20)
    assert "10 offsets were deleted" in run_here(archive).error
    services.change(acting=member_actor(owner_of(instance.tenant)), archive=archive, changes={"on_gap": "skip"})
    assert run_here(archive).is_caught_up
    kept = [record for record in sender.records if not 10 <= record[1] < 20]
    assert_loaded(lake, archive, kept)
    assert set(archive.partitions.values_list("missed_offsets", flat=True)) == {10}
    assert set(lake.rows("SELECT missed_offsets, skipped_records FROM penstock_loads")) == {(10, 0)}
    make_anew(bootstrap, sender.topic, 3)
    sender.records.clear()
    sender.send(90)
    assert run_here(archive).is_caught_up
    assert_loaded(lake, archive, [*kept, *sender.records])
    assert len(lake.rows("SELECT DISTINCT topic_id FROM orders")) == 2


def test_a_topic_that_is_made_anew_while_it_is_read_is_not_loaded_as_the_old_one(
    instance: Instance, sender: Sender, lake: TenantDatabase, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make_load(instance, sender.topic, lake.url("orders"), on_gap="skip")
    sender.send(30)
    finish = loading.TableLoader.finish

    def make_it_anew(loader: loading.TableLoader, reached: int) -> None:
        monkeypatch.setattr(loading.TableLoader, "finish", finish)
        make_anew(bootstrap, sender.topic, 3)
        finish(loader, reached)

    monkeypatch.setattr(loading.TableLoader, "finish", make_it_anew)
    assert loading.RECREATED_MEANWHILE in run_here(archive).error
    assert loaded(lake) == []
    sender.records.clear()
    sender.send(15)
    assert run_here(archive).is_caught_up
    assert_loaded(lake, archive, sender.records)


WRONG_TABLES = {
    "must be bytea, and is text": 'CREATE TABLE orders (topic_id text, partition int, "offset" bigint, timestamp'
    " timestamptz, timestamp_ms bigint, key text, value bytea, headers jsonb)",
    "must be integer, and is missing": "CREATE TABLE orders (topic_id text)",
    "needs a value that a record does not have": 'CREATE TABLE orders (topic_id text, partition int, "offset" bigint,'
    " timestamp timestamptz, timestamp_ms bigint, key bytea, value bytea, headers jsonb, customer int NOT NULL)",
    "not an ordinary, logged table": "CREATE VIEW orders AS SELECT 1 AS topic_id",
    "does not say of which offsets": "CREATE TABLE orders AS SELECT ''::text AS topic_id, 0 AS partition, 0::bigint AS"
    ' "offset", now() AS timestamp, 0::bigint AS timestamp_ms, '
    "''::bytea AS key, ''::bytea AS value, '[]'::jsonb AS headers",
}  # fmt: skip


def test_a_table_that_does_not_fit_is_refused_and_left_as_it_is(
    instance: Instance, sender: Sender, lake: TenantDatabase
) -> None:
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(3)
    for why, command in WRONG_TABLES.items():
        lake.execute(command)
        report = run_here(archive)
        assert (report.records, report.is_caught_up) == (0, False) and why in report.error, report
        assert not lake.rows("SELECT 1 FROM pg_tables WHERE tablename = 'penstock_loads'")
        lake.execute(f"DROP {command.split()[1]} orders")
    assert run_here(archive).records == 3


def test_a_table_of_the_tenants_own_may_have_more_columns_and_must_keep_every_row(
    instance: Instance, sender: Sender, lake: TenantDatabase
) -> None:
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(9)
    lake.execute(
        'CREATE TABLE orders (id bigserial PRIMARY KEY, topic_id text, partition int, "offset" bigint, timestamp'
        " timestamptz, timestamp_ms bigint, key bytea, value bytea, headers jsonb, note text)",
        "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        'CREATE TRIGGER drops BEFORE INSERT ON orders FOR EACH ROW WHEN (NEW."offset" = 1) EXECUTE FUNCTION drops()',
    )
    report = run_here(archive)
    assert "A trigger on it drops rows" in report.error and loaded(lake) == []
    lake.execute("DROP TRIGGER drops ON orders")
    assert run_here(archive).is_caught_up
    assert_loaded(lake, archive, sender.records)


def test_a_table_that_vanished_is_not_made_again_as_if_nothing_had_been_loaded(
    instance: Instance, sender: Sender, lake: TenantDatabase
) -> None:
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(30)
    assert run_here(archive).is_caught_up
    lake.execute("DROP TABLE orders")
    sender.send(30)
    assert "is gone" in run_here(archive).error
    lake.execute("DELETE FROM penstock_loads WHERE table_name = 'orders'")
    assert run_here(archive).records == 60
    assert_loaded(lake, archive, sender.records)


def test_a_table_that_vanishes_while_records_are_read_stops_the_run(
    instance: Instance, sender: Sender, lake: TenantDatabase
) -> None:
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(3)

    def drop(point: str) -> None:
        if point == "planned":
            lake.execute("DROP TABLE orders")

    session: Any = InThisProcess()
    report = running.run_one(lambda: session, archive, timezone.now(), at_point=drop)
    assert "was dropped or changed meanwhile" in report.error
    assert run_here(archive).records == 3
    assert_loaded(lake, archive, sender.records)


def test_refusals_of_the_database_say_what_to_do_next_and_no_secret(
    instance: Instance, sender: Sender, lake: TenantDatabase, postgres: EmbeddedPostgres, authority: Path
) -> None:
    sender.send(3)
    acting = member_actor(owner_of(instance.tenant))
    archive = make_load(instance, sender.topic, lake.url("orders"), database_password="not it")
    error = run_here(archive).error
    assert 'password authentication failed for user "loader"' in error and "Check user, password" in error
    assert "not it" not in error and "127.0.0.1" not in error
    services.change(acting=acting, archive=archive, changes={"database_password": PASSWORD})
    assert run_here(archive).is_caught_up
    missing = make_load(instance, sender.topic, lake.url("orders", schema="kafka"))
    assert "CREATE SCHEMA kafka" in run_here(missing).error
    lake.execute("CREATE SCHEMA kafka", as_user=USER)
    assert "The user may not do that" in run_here(missing).error
    with listening_over_tls(postgres, authority / "postgres.pem", "127.0.0.2") as port:
        elsewhere = TenantDatabase(port, lake.socket_dir)
        unproven = make_load(instance, sender.topic, elsewhere.url("others", host="127.0.0.2"))
        assert "certificate" in (error := run_here(unproven).error) and "sslmode=require" in error
        encrypted = make_load(instance, sender.topic, elsewhere.url("others", host="127.0.0.2", sslmode="require"))
        assert run_here(encrypted).records == 3


@pytest.mark.parametrize("says", ["nothing", "no TLS", "very much"])
def test_a_server_that_hangs_or_talks_stops_its_archive_alone_and_soon(
    instance: Instance, sender: Sender, lake: TenantDatabase, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PREPARE_S", 2.0)
    sender.send(3)
    listener = socket.create_server(("127.0.0.1", 0))
    taken = []

    def serve() -> None:
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            taken.append(client)
            try:
                if says == "no TLS":
                    client.sendall(b"N")
                while says == "very much":
                    client.sendall(bytes(65_536))
            except OSError:
                continue

    threading.Thread(target=serve, daemon=True).start()
    hostile = TenantDatabase(listener.getsockname()[1], lake.socket_dir)
    hanging = make_load(instance, sender.topic, hostile.url("orders"))
    other = make_load(instance, sender.topic, lake.url("orders"))
    began_s = time.monotonic()
    report = run_here(hanging)
    assert time.monotonic() - began_s < 10
    assert (report.records, report.is_caught_up) == (0, False) and report.error
    hanging.refresh_from_db()
    assert hanging.next_run_at > timezone.now() and not ArchivePartition.objects.filter(archive=hanging).exists()
    assert run_here(other).records == 3
    listener.close()
    for each in taken:
        each.close()


def test_a_table_that_is_locked_stops_its_archive_in_time_and_keeps_what_was_loaded(
    instance: Instance, sender: Sender, lake: TenantDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_S", 2.0)
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(3)
    assert run_here(archive).is_caught_up
    sender.send(3)
    with lake.admin() as holder, holder.transaction():
        holder.execute("LOCK TABLE orders IN SHARE MODE")
        report = run_here(archive)
    assert report.records == 0 and "did not finish within 2 s" in report.error
    assert run_here(archive).records == 3
    assert_loaded(lake, archive, sender.records)


def test_a_database_inside_our_network_is_not_connected_to(
    instance: Instance, sender: Sender, lake: TenantDatabase, settings: Any
) -> None:
    """A name may resolve to another address later: it is checked when it is connected to."""
    archive = make_load(instance, sender.topic, lake.url("orders").replace("127.0.0.1", "localhost"))
    sender.send(1)
    settings.OUTBOUND_PRIVATE_ADDRESSES = []
    assert "No public address" in run_here(archive).error
    assert not lake.rows("SELECT 1 FROM pg_tables WHERE schemaname = 'public'")


def test_progress_that_no_log_can_have_is_refused(instance: Instance, sender: Sender, lake: TenantDatabase) -> None:
    archive = make_load(instance, sender.topic, lake.url("orders"))
    sender.send(3)
    assert run_here(archive).is_caught_up
    for column, number in (
        ("next_offset", -1),
        ("next_offset", 2**63 - 1),
        ("rows", -1),
        ("missed_offsets", 2**63 - 1),
    ):
        lake.execute(f"UPDATE penstock_loads SET {column} = {number}")
        assert "a number that no offset can be" in run_here(archive).error
        lake.execute(f"UPDATE penstock_loads SET {column} = 1")
    lake.execute("UPDATE penstock_loads SET next_offset = 1000000")
    assert "was archived to 1000000" in run_here(archive).error


def test_an_answer_has_a_limit_of_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = Relay(
            "127.0.0.1",
            listener.getsockname()[1],
            refused=(),
            private=(LOOPBACK,),
            within_s=20,
            answer_bytes_max=100_000,
        )
        with relay, socket.create_connection(("127.0.0.1", relay.port)) as client:
            server = listener.accept()[0]
            server.sendall(bytes(90_000))
            assert len(client.recv(90_000, socket.MSG_WAITALL)) == 90_000 and not relay.is_answer_too_long
            server.sendall(bytes(20_000))
            while client.recv(65_536):
                pass
            assert relay.is_answer_too_long and not relay.is_late
            server.close()


def test_large_records_are_loaded_in_batches(
    instance: Instance, sender: Sender, lake: TenantDatabase, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 1_000_000)
    archive = make_load(instance, sender.topic, lake.url("orders"))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(12):
        producer.produce(sender.topic, bytes([number]) * 900_000, b"\x00", 0, headers=[("h", b"\x00" * 1_000)])
    assert producer.flush(60) == 0
    committed: list[str] = []
    session: Any = InThisProcess()
    report = running.run_one(lambda: session, archive, timezone.now(), at_point=committed.append)
    assert (report.records, report.is_caught_up, report.error) == (12, True, "")
    assert committed.count("committed") == 6
    assert [row[4][0] for row in loaded(lake)] == list(range(12))
