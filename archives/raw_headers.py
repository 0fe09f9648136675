"""Headers of records as bytes, read through librdkafka's C interface.

The Python client fails for a header name that is not UTF-8.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

# Up to this distance in offsets, the next record is reached by reading on instead of seeking.
READ_ON_OFFSETS_MAX: Final = 1_000
_RD_KAFKA_CONSUMER: Final = 1
_POLL_MS: Final = 200
_ERROR_CHARS: Final = 512


class HeadersUnreadable(Exception):
    """The record did not arrive in time, or librdkafka cannot be called."""


class _Message(ctypes.Structure):
    """Record in librdkafka's public interface (`rd_kafka_message_t`)."""

    _fields_ = (
        ("err", c_int), ("rkt", c_void_p), ("partition", c_int32), ("payload", c_void_p), ("len", c_size_t),
        ("key", c_void_p), ("key_len", c_size_t), ("offset", c_int64), ("private", c_void_p),
    )  # fmt: skip


class RawHeaders:
    """Reader of record headers of one partition, in order of ascending offsets. It connects on first use."""

    def __init__(self, conf: Mapping[str, Any], topic: str, partition: int, timeout_s: float) -> None:
        self._conf = conf
        self._topic = topic.encode()
        self._partition = partition
        self._timeout_s = timeout_s
        self._client: int | None = None
        self._position: int | None = None

    def read(self, offset: int) -> list[tuple[bytes, bytes | None]]:
        """Returns the headers of the record at an offset. Raises `HeadersUnreadable`."""
        library = _library()
        if self._client is None:
            self._client = _connect(library, self._conf)
        if self._position is None or not 0 <= offset - self._position <= READ_ON_OFFSETS_MAX:
            self._seek(library, offset)
        deadline_s = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline_s:
            message = library.rd_kafka_consumer_poll(self._client, _POLL_MS)
            if not message:
                continue
            try:
                if message.contents.err:
                    continue
                self._position = message.contents.offset + 1
                if message.contents.offset == offset:
                    return _headers_of(library, message)
                if message.contents.offset > offset:
                    break
            finally:
                library.rd_kafka_message_destroy(message)
        raise HeadersUnreadable(f"the record at offset {offset} did not come")

    def close(self) -> None:
        if self._client is not None:
            library = _library()
            library.rd_kafka_consumer_close(self._client)
            library.rd_kafka_destroy(self._client)
            self._client = None

    def _seek(self, library: Any, offset: int) -> None:
        partitions = library.rd_kafka_topic_partition_list_new(1)
        library.rd_kafka_topic_partition_list_add(partitions, self._topic, self._partition)
        library.rd_kafka_topic_partition_list_set_offset(partitions, self._topic, self._partition, offset)
        failure = library.rd_kafka_assign(self._client, partitions)
        library.rd_kafka_topic_partition_list_destroy(partitions)
        if failure:
            raise HeadersUnreadable(f"librdkafka refuses to read the partition: {failure}")
        self._position = offset


def _headers_of(library: Any, message: Any) -> list[tuple[bytes, bytes | None]]:
    headers = c_void_p()
    if library.rd_kafka_message_headers(message, byref(headers)):
        return []
    result: list[tuple[bytes, bytes | None]] = []
    name, value, size = c_char_p(), c_void_p(), c_size_t()
    while not library.rd_kafka_header_get_all(headers, len(result), byref(name), byref(value), byref(size)):
        result.append((name.value or b"", ctypes.string_at(value.value, size.value) if value.value else None))
    return result


def _connect(library: Any, conf: Mapping[str, Any]) -> int:
    message = ctypes.create_string_buffer(_ERROR_CHARS)
    settings = library.rd_kafka_conf_new()
    for name, value in conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if library.rd_kafka_conf_set(settings, name.encode(), text.encode(), message, _ERROR_CHARS):
            library.rd_kafka_conf_destroy(settings)
            raise HeadersUnreadable(f"librdkafka refuses {name}")
    client: int | None = library.rd_kafka_new(_RD_KAFKA_CONSUMER, settings, message, _ERROR_CHARS)
    if not client:
        library.rd_kafka_conf_destroy(settings)
        raise HeadersUnreadable("librdkafka makes no client")
    return client


@cache
def _library() -> Any:
    """Returns the library that the Python client has loaded. Raises `HeadersUnreadable`."""
    import confluent_kafka  # noqa: F401  (loads the library)

    path = re.search(r"(/\S*librdkafka\S*)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    if path is None:
        raise HeadersUnreadable("librdkafka is part of its Python client")
    library = ctypes.CDLL(path[1])
    for name, result, *arguments in (
        ("rd_kafka_conf_new", c_void_p),
        ("rd_kafka_conf_destroy", None, c_void_p),
        ("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
        ("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t),
        ("rd_kafka_destroy", None, c_void_p),
        ("rd_kafka_consumer_close", c_int, c_void_p),
        ("rd_kafka_consumer_poll", POINTER(_Message), c_void_p, c_int),
        ("rd_kafka_assign", c_int, c_void_p, c_void_p),
        ("rd_kafka_topic_partition_list_new", c_void_p, c_int),
        ("rd_kafka_topic_partition_list_add", c_void_p, c_void_p, c_char_p, c_int32),
        ("rd_kafka_topic_partition_list_set_offset", c_int, c_void_p, c_char_p, c_int32, c_int64),
        ("rd_kafka_topic_partition_list_destroy", None, c_void_p),
        ("rd_kafka_message_headers", c_int, POINTER(_Message), POINTER(c_void_p)),
        ("rd_kafka_message_destroy", None, POINTER(_Message)),
        ("rd_kafka_header_get_all", c_int, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)),
    ):
        function = getattr(library, str(name))
        function.restype, function.argtypes = result, arguments
    return library
