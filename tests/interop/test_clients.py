"""Stock clients, unchanged, on an instance's own address: what each produces every one reads back, byte for byte.

`PENSTOCK_INTEROP_RECORDS` sets the size (the acceptance run uses 100,000); the default keeps `make test` short.
"""

from __future__ import annotations

import os
import random
import shutil
import uuid

import pytest

from tests.interop.clients import Client, ConfluentKafka, KafkaPython, Kcat, Log, Record
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

RECORDS = int(os.environ.get("PENSTOCK_INTEROP_RECORDS", "3000"))
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
needs_kcat = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="the program kcat (a Debian package) is not installed"
)
CLIENTS = [
    pytest.param(ConfluentKafka(), id="confluent-kafka"),
    pytest.param(KafkaPython(), id="kafka-python"),
    pytest.param(Kcat(), id="kcat", marks=needs_kcat),
]


def some_records(count: int, seed: int) -> list[Record]:
    """Records whose values compress a little, of 0 to 400 bytes, without the bytes kcat's line format reserves."""
    rng = random.Random(seed)
    words = [b"order", b"payment", b"refund", "中文".encode(), b"0123456789"]
    return [
        (
            index % PARTITIONS,
            b"k%d" % index,
            b"%d:" % index + b" ".join(rng.choice(words) for _ in range(rng.randrange(40))),
        )
        for index in range(count)
    ]


def expected(records: list[Record]) -> Log:
    log: Log = {partition: [] for partition in range(PARTITIONS)}
    for partition, key, value in records:
        log[partition].append((key, value))
    return log


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_reads_back_its_records_in_order(client: Client, codec: str, demo_bootstrap: str) -> None:
    topic = f"interop-{uuid.uuid4().hex[:12]}"
    records = some_records(RECORDS, seed=7)
    client.create_topic(demo_bootstrap, topic, PARTITIONS)
    eventually(lambda: topic in client.list_topics(demo_bootstrap), within_s=10, what="every broker to know the topic")
    client.produce(demo_bootstrap, topic, records, codec)
    assert client.consume(demo_bootstrap, topic, PARTITIONS, len(records)) == expected(records)


def test_every_client_reads_what_every_other_produced(demo_bootstrap: str) -> None:
    clients = [
        parameter.values[0] for parameter in CLIENTS if parameter.values[0].name != "kcat" or shutil.which("kcat")
    ]
    topic = f"interop-{uuid.uuid4().hex[:12]}"
    clients[0].create_topic(demo_bootstrap, topic, PARTITIONS)
    written: list[Record] = []
    for seed, (client, codec) in enumerate(zip(clients, ("gzip", "zstd", "lz4"), strict=False)):
        records = some_records(300, seed)
        client.produce(demo_bootstrap, topic, records, codec)
        written += records
    for client in clients:
        assert client.consume(demo_bootstrap, topic, PARTITIONS, len(written)) == expected(written)
