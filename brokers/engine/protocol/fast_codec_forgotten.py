"""Hand-written piecewise decoder of the topics that an incremental fetch removes from its session (KIP-227).

Tenants have no fetch sessions but may name any number of topics, so these are decoded piecewise like the topics to
fetch.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.lengths import (
    Buffer,
    read_classic_name,
    read_compact_name,
    read_varint,
    skip_tagged_fields,
)

_INT: Final = Struct(">i")

ForgottenTopic = tuple[bytes, list[int]]


class ForgottenDecoder:
    """Piecewise decoder of `(name or id, [partition])`: call `advance` until it returns True.

    `topics` are the decoded ones, `position` is that of the next byte. Raises MalformedRequest, and IndexError or
    struct.error for a frame that ends too early.
    """

    __slots__ = (
        "_buffer", "_by_id", "_end", "_indexes", "_indexes_left", "_is_flexible", "_is_in_topic", "_items_left",
        "_topics_left", "position", "topics",
    )  # fmt: skip

    def __init__(
        self, buffer: Buffer, position: int, end: int, items_max: int, *, is_flexible: bool, by_id: bool
    ) -> None:
        self._buffer, self._end, self._is_flexible, self._by_id = buffer, end, is_flexible, by_id
        self.position = position
        self.topics: list[ForgottenTopic] = []
        self._items_left = items_max
        self._is_in_topic = False
        self._indexes: list[int] = []
        self._indexes_left = 0
        self._topics_left = self._read_count(18 if by_id else 3 if is_flexible else 6, "topics")

    def advance(self, items_max: int) -> bool:
        """Decodes up to `items_max` more topics and partitions; returns True when all are decoded."""
        buffer, items_left = self._buffer, items_max
        while True:
            if self._is_in_topic:
                piece_count = min(self._indexes_left, items_left)
                position = self.position
                for _ in range(piece_count):
                    self._indexes.append(_INT.unpack_from(buffer, position)[0])
                    position += 4
                items_left -= piece_count
                self._indexes_left -= piece_count
                self.position = position
                if self._indexes_left:
                    return False
                if self._is_flexible:
                    self.position = skip_tagged_fields(buffer, position, self._end)
                self._is_in_topic = False
            if not self._topics_left:
                return True
            if items_left <= 0:
                return False
            self._begin_topic()
            items_left -= 1

    def _begin_topic(self) -> None:
        buffer, position = self._buffer, self.position
        if self._by_id:
            topic = bytes(buffer[position : position + 16])
            self.position = position + 16
        elif self._is_flexible:
            topic, self.position = read_compact_name(buffer, position, self._end)
        else:
            topic, self.position = read_classic_name(buffer, position, self._end)
        self._indexes = []
        self._indexes_left = self._read_count(4, "partitions")
        self.topics.append((topic, self._indexes))
        self._topics_left -= 1
        self._is_in_topic = True

    def _read_count(self, item_bytes_min: int, kind: str) -> int:
        if self._is_flexible:
            length, self.position = read_varint(self._buffer, self.position)
            count = length - 1
        else:
            (count,) = _INT.unpack_from(self._buffer, self.position)
            self.position += 4
        self._items_left -= count
        if count < 0 or count > (self._end - self.position) // item_bytes_min or self._items_left < 0:
            raise MalformedRequest(f"the forgotten {kind} are null or too many")
        return count
