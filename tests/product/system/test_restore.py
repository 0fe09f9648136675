"""A rehearsal of docs/how-to/back-up-and-restore.md: PostgreSQL and ZooKeeper are lost, and clients continue."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from config.environment import BASE_DIR
from tests.testkit.stack import Stack, environment, make_stack
from tests.testkit.tenancy import Caller
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

BROKERS = 2
RECORDS = 500
TOPIC = "orders"
GROUP = "app"
QUIET = {"log_level": 0}


@pytest.fixture()
def product(tmp_path: Path) -> Iterator[Stack]:
    """A product of its own, because its data is lost."""
    made = make_stack(tmp_path, brokers=BROKERS)
    try:
        made.start()
        yield made
    finally:
        if made.process is not None:
            made.stop()


def command(*words: str) -> tuple[str, float]:
    """Returns the output of a successful command, and its seconds."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=BASE_DIR, env=environment(), capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout, time.monotonic() - started


def produce(product: Stack, first: int) -> None:
    """Produces records with acks=all, by a producer that would detect a reused producer id."""
    producer = Producer({**product.demo_client(), "acks": "all", "enable.idempotence": True, **QUIET})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number).encode(), str(number).encode())
    assert producer.flush(60) == 0


def read(product: Stack, count: int, *, group: str) -> list[int]:
    """Reads and commits the next records of a group."""
    consumer = Consumer(
        {
            **product.demo_client(),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.subscribe([TOPIC])
    found: list[int] = []

    def is_all() -> bool:
        found.extend(int(message.value()) for message in consumer.consume(RECORDS, 0.5) if message.error() is None)
        return len(found) >= count

    eventually(is_all, within_s=60, what=f"{count} records")
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def end_offsets(product: Stack) -> list[int]:
    """Returns the end of each partition."""
    consumer = Consumer({**product.demo_client(), "group.id": "looks", **QUIET})
    try:
        partitions = sorted(consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)
        return [consumer.get_watermark_offsets(TopicPartition(TOPIC, each), timeout=30)[1] for each in partitions]
    finally:
        consumer.close()


def test_clients_go_on_after_database_and_zookeeper_were_lost(product: Stack, tmp_path: Path) -> None:
    tenant = Caller(api_url=product.ready["api_url"], token=product.ready["tenant"]["token"])
    before = product.ready
    body = {"name": TOPIC, "partitions": 3, "replication_factor": BROKERS}
    status, answer = tenant.call("POST", f"/instances/{before['instance']['id']}/topics", body)
    assert status in (201, 202), answer
    produce(product, 0)
    assert read(product, RECORDS, group=GROUP) == list(range(RECORDS))

    backup = tmp_path / "backup"
    printed, backup_s = command("backup", str(backup), "--state-dir", str(product.state_dir))
    checksum = printed.split("SHA-256 of its manifest: ")[1].split()[0]
    produce(product, RECORDS)  # which the logs have, and the backup does not
    ends = end_offsets(product)
    refused = subprocess.run(
        [sys.executable, "manage.py", "restore", str(backup), "--state-dir", str(product.state_dir), "--replace"],
        cwd=BASE_DIR, env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "already runs" in refused.stderr
    assert product.stop() == 0

    for name in ("postgres", "zookeeper"):
        shutil.rmtree(product.state_dir / name)
    _, restore_s = command("restore", str(backup), "--state-dir", str(product.state_dir), "--sha256", checksum)
    started = time.monotonic()
    product.start()
    start_s = time.monotonic() - started

    assert product.ready["instance"] == before["instance"]
    assert product.ready["tenant"] == before["tenant"]
    assert tenant.get(f"/instances/{before['instance']['id']}")["status"]["phase"] == "running"
    assert end_offsets(product) == ends
    produce(product, 2 * RECORDS)
    assert read(product, 2 * RECORDS, group=GROUP) == list(range(RECORDS, 3 * RECORDS))
    assert read(product, 3 * RECORDS, group="new") == list(range(3 * RECORDS))
    print(
        f"\nbackup {backup_s:.1f} s, restore {restore_s:.1f} s, start {start_s:.1f} s; 0 of {3 * RECORDS} records lost"
    )
