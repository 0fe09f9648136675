"""A Spark data source that reads ranges of a usage topic through a Kafka client and yields Arrow batches.

Options: `bootstrap`, those of `cluster.Cluster.login` (what opens the internal listener), `ranges`, a JSON list of
`[partition, start, stop)` triples, and `bytes_max`. Each range is one Spark task. It ends behind the record with which
it has read `bytes_max`, or at its stop: whoever wants to know where asks for the highest offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from billing.pipeline import schema
from brokers.contract.usage import (
    COUNTED_THINGS,
    FIELD_NAMES,
    NAME_CHARACTERS_MAX,
    USAGE_TOPIC,
    VERSION,
    UsageEvent,
    counted_name,
)

ROWS_PER_BATCH = 20_000
READ_TIMEOUT_S = 60.0
_COUNTED = frozenset(COUNTED_THINGS)

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
    if column.kind is schema.STRING:
        return counted_name(value)
    number = int(value)
    if not -(2**63) <= number < 2**63 or (column.kind is schema.INT32 and not -(2**31) <= number < 2**31):
        raise ValueError(f"{column.name} does not fit")
    return number


def batch_of(partition: int, offsets: Sequence[int], raws: Sequence[bytes | None]) -> pa.RecordBatch:
    """Rows of `schema.EVENT`, as `row_of` makes each. What all brokers write is read at once, a fourth of the price."""
    try:
        return _read_at_once(partition, offsets, raws)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return as_batch([row_of(partition, offset, raw) for offset, raw in zip(offsets, raws, strict=True)])


def _read_at_once(partition: int, offsets: Sequence[int], raws: Sequence[Any]) -> pa.RecordBatch:
    """Raises `ValueError`, `TypeError`, `OverflowError`: one of the records is not as brokers write it."""
    joined = b",".join(raws)
    # With these, and all of them flat, records are elements: none of them can lend another one a bracket.
    if not all(raw[:1] == b"[" and raw[-1:] == b"]" for raw in raws) or b"\\u0000" in joined:
        raise ValueError("no events")
    rows = json.loads(b"[%b]" % joined)
    if len(rows) != len(raws):
        raise ValueError("not one event each")
    versions, *values = zip(*rows, strict=True)
    if versions.count(VERSION) != len(rows) or len(values) != len(FIELD_NAMES):
        raise ValueError("another version")
    arrays = [pa.array([partition] * len(rows), pa.int32()), pa.array(offsets, pa.int64())]
    for column, each in zip(schema.EVENT[2:], values, strict=True):
        arrays.append(array := pa.array(each, type=getattr(pa, column.kind.arrow)()))
        if array.null_count or (column.kind is schema.STRING and max(map(len, each)) > NAME_CHARACTERS_MAX):
            raise ValueError(f"{column.name} is not as it is counted")
        if column.name == "direction" and not set(each) <= _COUNTED:
            raise ValueError("counted in a way nobody knows")
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


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
        self.bytes_max = int(options["bytes_max"])
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
        offsets: list[int] = []
        raws: list[bytes | None] = []
        try:
            consumer.assign([TopicPartition(USAGE_TOPIC, partition.partition, partition.start)])
            position, deadline = partition.start, time.monotonic() + READ_TIMEOUT_S
            size = 0
            while position < partition.stop and size < self.bytes_max:
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
                    if offset is None or offset >= partition.stop or size >= self.bytes_max:
                        break
                    offsets.append(offset)
                    raws.append(raw := message.value())
                    size += len(raw or b"")
                    position = offset + 1
                if len(raws) >= ROWS_PER_BATCH:
                    yield batch_of(partition.partition, offsets, raws)
                    offsets, raws = [], []
            if raws:
                yield batch_of(partition.partition, offsets, raws)
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
