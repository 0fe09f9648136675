"""Other codecs (kio, kafka-python) behind one interface: decode our bytes, encode them again, return the values."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import io
import re
import uuid
import warnings
from functools import cache
from types import ModuleType
from typing import Any

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from brokers.engine.protocol.apis import APIS

KAFKA_PYTHON_MODULES = (
    "kafka.protocol.producer.produce",
    "kafka.protocol.producer.transaction",
    "kafka.protocol.consumer.fetch",
    "kafka.protocol.consumer.group",
    "kafka.protocol.consumer.metadata",
    "kafka.protocol.consumer.offsets",
    "kafka.protocol.metadata.api_versions",
    "kafka.protocol.metadata.find_coordinator",
    "kafka.protocol.metadata.metadata",
    "kafka.protocol.admin.acl",
    "kafka.protocol.admin.client_quotas",
    "kafka.protocol.admin.cluster",
    "kafka.protocol.admin.configs",
    "kafka.protocol.admin.groups",
    "kafka.protocol.admin.topics",
    "kafka.protocol.admin.transactions",
    "kafka.protocol.admin.users",
    "kafka.protocol.sasl",
)


@cache
def kafka_python_classes() -> dict[tuple[int, str], Any]:
    """Return kafka-python's message classes by `(api key, direction)`."""
    result = {}
    for name in KAFKA_PYTHON_MODULES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a deprecated way
            module: ModuleType = importlib.import_module(name)
        for value in vars(module).values():
            schema = getattr(value, "json", None) if isinstance(value, type) else None
            if schema and "apiKey" in schema:
                result[schema["apiKey"], schema["type"]] = value
    return result


@cache
def kio_class(api_key: int, version: int, direction: str) -> Any | None:
    """Return kio's class of this version, or None if kio has none."""
    load = load_request_schema if direction == "request" else load_response_schema
    try:
        return load(api_key, version)
    except (UnknownAPIKey, UnknownEntity):
        return None


def through_kio(api_key: int, version: int, direction: str, body: bytes) -> tuple[bytes, Any] | None:
    """Decode and encode a body with kio; return the bytes and the values, or None if kio lacks the version."""
    cls = kio_class(api_key, version, direction)
    if cls is None:
        return None
    entity, read_bytes = entity_reader(cls)(body, 0)
    assert read_bytes == len(body), f"kio read {read_bytes} of {len(body)} bytes"
    out = io.BytesIO()
    entity_writer(cls)(out, entity)
    return out.getvalue(), plain(entity)


def through_kafka_python(api_key: int, version: int, direction: str, body: bytes) -> bytes | None:
    """Decode and encode a body with kafka-python; return the bytes, or None if it lacks the version."""
    cls = kafka_python_classes().get((api_key, direction))
    if cls is None or version > cls.max_version:
        return None
    message = cls.decode(body, version=version)
    message._header = None  # its decoder leaves the attribute unset, which its encoder misses
    return bytes(message.encode(version=version))


def plain(value: Any) -> Any:
    """Convert a message of any codec to dicts, lists, ints, strings and bytes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            re.sub(r"_ms$", "", field.name): plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def api_name(api_key: int) -> str:
    return APIS[api_key].key.name
