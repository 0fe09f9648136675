"""Requests into another instance: every field of every call of every version, filled with its names."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.fields import FIXED, FieldSpec, fields_of, message_class
from brokers.engine.records import builder

# Values that make a call do something instead of failing on a bad number first.
SENSIBLE: dict[str, Any] = {
    "acks": -1,
    "timeout_ms": 1_000,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "current_leader_epoch": -1,
    "timestamp": -2,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "validate_only": True,
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "transaction_timeout_ms": 60_000,
    "session_epoch": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "client_software_name": "attack",
    "client_software_version": "1",
}


def versions() -> Iterator[tuple[ApiKey, int]]:
    """Yields every (call, version) that a tenant port serves."""
    for api_key, (lowest, highest) in ADVERTISED_TENANT.items():
        for version in range(lowest, highest + 1):
            yield api_key, version


def requests(api_key: ApiKey, version: int, names: list[str], topic_ids: list[bytes]) -> Iterator[Any]:
    """Yields requests with each of the foreign `names` in every text field and each of `topic_ids` in every
    uuid field.
    """
    blank = filled(message_class(api_key, "request"), version, None, bytes(16))
    for name in names:
        yield filled(message_class(api_key, "request"), version, name, bytes(16))
    for topic_id in topic_ids:
        yield filled(message_class(api_key, "request"), version, None, topic_id)
    if api_key is ApiKey.METADATA:
        everything = copy.copy(blank)
        everything.topics = None if version >= 1 else []
        yield everything


def filled(cls: type[Any], version: int, name: str | None, topic_id: bytes) -> Any:
    """Returns an instance of the declared class with one item in every array."""
    values: dict[str, Any] = {}
    for field, spec, _default in fields_of(cls):
        if not spec.exists(version):
            continue
        if spec.tag is not None:
            continue
        values[field] = _value(field, spec, version, name, topic_id)
    return cls(**values)


def _value(field: str, spec: FieldSpec, version: int, name: str | None, topic_id: bytes) -> Any:
    if field in SENSIBLE:
        return SENSIBLE[field]
    if field == "assignments" and spec.kind == "array":
        return []
    if field == "transactional_id" and spec.is_nullable(version):
        return None
    if spec.kind == "array":
        return [_value(field, spec.inner, version, name, topic_id)]
    if spec.kind == "nested":
        return filled(spec.inner, version, name, topic_id)
    if spec.kind == "text":
        return name if name is not None else (None if spec.is_nullable(version) else "nothing")
    if spec.kind == "records":
        return bytes(builder.build_batch([builder.Record(1_600_000_000_000, b"k", b"foreign")]))
    if spec.kind == "uuid":
        return topic_id
    if spec.kind == "blob":
        return b""
    assert spec.kind in FIXED
    return False if spec.kind == "boolean" else 0
