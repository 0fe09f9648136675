"""A Spark data source that reads ranges of a usage topic through a Kafka client and yields Arrow batches.

Options: `bootstrap`, those of `cluster.Cluster.login` (what opens the internal listener) and `ranges`, a JSON list of
`[partition, start, stop)` triples. Each range is one Spark task.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from billing.pipeline import schema
from brokers.contract.usage import COUNTED_THINGS, USAGE_TOPIC, UsageEvent, counted_name

ROWS_PER_BATCH = 20_000
READ_TIMEOUT_S = 60.0

ARROW_SCHEMA = pa.schema([(column.name, getattr(pa, column.kind.arrow)()) for column in schema.EVENT])


class UsageReadStalled(Exception):
    """The brokers did not deliver a planned range in time; the run is repeated from the same offsets."""


def row_of(partition: int, offset: int, raw: bytes | None) -> tuple[Any, ...]:
    """One row of `schema.EVENT`; a record that is no usage event keeps its place with everything else null."""
    try:
        values = UsageEvent.from_json(raw or b"").values()
        return (partition, offset, *map(_checked, schema.EVENT[2:], values))
    except (ValueError, TypeError, AttributeError):
        return (partition, offset, *[None] * (len(schema.EVENT) - 2))


def _checked(column: schema.Column, value: Any) -> Any:
    """The value as its column holds it; what is counted in a way nobody knows is None."""
    if column.name == "direction":
        return value if value in COUNTED_THINGS else None
    return counted_name(value) if column.kind is schema.STRING else int(value)


@dataclass
class OffsetRange(InputPartition):
    """Records `[start, stop)` of one partition of the usage topic."""

    partition: int
    start: int
    stop: int


class UsageReader(DataSourceReader):
    """Runs on Spark's workers: one consumer per range, no consumer group, offsets from the plan alone."""

    def __init__(self, options: dict[str, str]) -> None:
        self.conf = consumer_conf(options["bootstrap"], options)
        self.ranges = [OffsetRange(*triple) for triple in json.loads(options["ranges"])]

    def partitions(self) -> list[OffsetRange]:
        return self.ranges

    def read(self, partition: OffsetRange) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yields the range in Arrow batches.

        Raises:
            UsageReadStalled: no progress for `READ_TIMEOUT_S`.
        """
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer(self.conf)
        rows: list[tuple[Any, ...]] = []
        try:
            consumer.assign([TopicPartition(USAGE_TOPIC, partition.partition, partition.start)])
            position, deadline = partition.start, time.monotonic() + READ_TIMEOUT_S
            while position < partition.stop:
                messages = consumer.consume(ROWS_PER_BATCH, 0.5)
                if messages:
                    deadline = time.monotonic() + READ_TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise UsageReadStalled(f"{USAGE_TOPIC}-{partition.partition} stalled at offset {position}")
                for message in messages:
                    failure, offset = message.error(), message.offset()
                    if failure is not None:
                        if failure.retriable():
                            continue
                        raise KafkaException(failure)
                    if offset is None or offset >= partition.stop:
                        break
                    rows.append(row_of(partition.partition, offset, message.value()))
                    position = offset + 1
                if len(rows) >= ROWS_PER_BATCH:
                    yield as_batch(rows)
                    rows = []
            if rows:
                yield as_batch(rows)
        finally:
            consumer.close()


class UsageSource(DataSource):
    """Registered as format `penstock_usage`."""

    @classmethod
    def name(cls) -> str:
        return "penstock_usage"

    def schema(self) -> str:
        return schema.spark_ddl(schema.EVENT)

    def reader(self, schema: Any) -> UsageReader:
        return UsageReader(dict(self.options))


def as_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, type=field.type) for column, field in zip(zip(*rows, strict=True), ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _login_conf(login: Mapping[str, str]) -> dict[str, Any]:
    certificate_file = login.get("certificate_file")
    if certificate_file:
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": login["ca_file"],
            "ssl.certificate.location": certificate_file,
            "ssl.key.location": certificate_file,
            # A certificate names a process, not a host; only brokers have one that serves (decision 106).
            "ssl.endpoint.identification.algorithm": "none",
        }
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": login["username"],
        "sasl.password": login["password"],
    }


def consumer_conf(bootstrap: str, login: Mapping[str, str]) -> dict[str, Any]:
    """Settings of a consumer that reads by explicit offsets and never commits or joins anything."""
    return {
        **_login_conf(login),
        "bootstrap.servers": bootstrap,
        "group.id": "penstock-usage",
        "client.id": "penstock-usage-pipeline",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "allow.auto.create.topics": False,
        "log_level": 3,
    }
