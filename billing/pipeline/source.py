"""A Spark data source that reads ranges of a usage topic through a Kafka client and yields Arrow batches.

Options: `bootstrap`, those of `cluster.Cluster.login` (what opens the internal listener), `ranges`, a JSON list of
`[partition, start, stop, since_ms, until_ms]` (records `[start, stop)` and the bounds of their clock), `incarnations`,
a JSON list of the fields of each `doubts.Incarnation`, and `bytes_max`. Each range is one Spark task. It ends behind
the record with which it has read `bytes_max`, or at its stop: its highest offset says where.
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
from billing.pipeline.decoding import batch_of
from billing.pipeline.doubts import ClockBounds, Incarnation, Incarnations, with_bounded_clock
from brokers.contract.usage import USAGE_TOPIC

ROWS_PER_BATCH = 20_000
READ_TIMEOUT_S = 60.0


class UsageReadStalled(Exception):
    """The brokers did not deliver a planned range in time; the run is repeated from the same offsets."""


@dataclass
class OffsetRange(InputPartition):
    """Records `[start, stop)` of one partition of the usage topic, and between which times they were reported."""

    partition: int
    start: int
    stop: int
    since_ms: int | None
    until_ms: int


class UsageReader(DataSourceReader):
    """Runs on Spark's workers: one consumer per range, no consumer group, offsets from the plan alone."""

    def __init__(self, options: dict[str, str]) -> None:
        self.conf = consumer_conf(options["bootstrap"], options)
        self.bytes_max = int(options["bytes_max"])
        self.ranges = [OffsetRange(*each) for each in json.loads(options["ranges"])]
        self.incarnations = [Incarnation(*each) for each in json.loads(options["incarnations"])]

    def partitions(self) -> list[OffsetRange]:
        return self.ranges

    def read(self, partition: OffsetRange) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yields the range in Arrow batches.

        Raises:
            UsageReadStalled: no progress for `READ_TIMEOUT_S`.
        """
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        bounds = ClockBounds(partition.since_ms, partition.until_ms)
        incarnations = Incarnations(self.incarnations)

        def checked() -> pa.RecordBatch:
            batch = with_bounded_clock(batch_of(partition.partition, offsets, raws), bounds)
            return incarnations.refuse_reused(batch)

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
                    yield checked()
                    offsets, raws = [], []
            if raws:
                yield checked()
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
