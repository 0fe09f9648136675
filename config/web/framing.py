"""Detection of the end of a request in received bytes: pure, and within the limits.

gunicorn's parser reads the header and, later in a thread, the body again. The detection here only has to bound it: even
a body that both interpret differently ends with this request's bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from config.web.limits import (
    BODY_BYTES_MAX,
    CHUNK_LINE_BYTES_MAX,
    HEAD_BYTES_MAX,
    REQUEST_LINE_BYTES_MAX,
    TRAILER_BYTES_MAX,
)

END_OF_LINE = b"\r\n"
END_OF_HEAD = b"\r\n\r\n"
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?", re.DOTALL)


class Refused(Exception):
    """The request is answered with `status` and not received any further."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Step(Enum):
    SIZE = auto()
    END_OF_CHUNK = auto()
    TRAILER = auto()


def end_of_head(buffer: bytearray, searched: int) -> int | None:
    """Returns the position after the header, or None; `searched` bytes were searched before.

    Raises:
        Refused: the header is too long.
    """
    position = buffer.find(END_OF_HEAD, max(0, searched - len(END_OF_HEAD) + 1), HEAD_BYTES_MAX)
    if position >= 0:
        return position + len(END_OF_HEAD)
    is_new = len(buffer) > REQUEST_LINE_BYTES_MAX >= searched
    if is_new and buffer.find(END_OF_LINE, 0, REQUEST_LINE_BYTES_MAX + len(END_OF_LINE)) < 0:
        raise Refused(414)
    if len(buffer) >= HEAD_BYTES_MAX:
        raise Refused(431)
    return None


class Body(Protocol):
    """Framing of a body that begins at `start`."""

    start: int

    def end(self, buffer: bytearray) -> int | None: ...


@dataclass(slots=True)
class SizedBody:
    """Body with a Content-Length, from `start` on."""

    start: int
    size_bytes: int

    def __post_init__(self) -> None:
        if self.size_bytes > BODY_BYTES_MAX:
            raise Refused(413)

    def end(self, buffer: bytearray) -> int | None:
        """Returns the position after the body, or None."""
        end = self.start + self.size_bytes
        return end if len(buffer) >= end else None


@dataclass(slots=True)
class ChunkedBody:
    """Chunked body, from `start` on."""

    start: int
    _position: int = field(init=False)
    _step: _Step = field(default=_Step.SIZE, init=False)

    def __post_init__(self) -> None:
        self._position = self.start

    def end(self, buffer: bytearray) -> int | None:
        """Returns the position after the body, or None. Raises `Refused`."""
        while True:
            progress_before = self._position, self._step
            end_position = self._advance(buffer)
            # A chunk counts as soon as it is announced.
            if max(self._position, len(buffer) if end_position is None else 0) - self.start > BODY_BYTES_MAX:
                raise Refused(413)
            if end_position is not None or progress_before == (self._position, self._step):
                return end_position

    def _advance(self, buffer: bytearray) -> int | None:
        position = self._position
        if self._step is _Step.SIZE:
            self._read_size(buffer, position)
        elif self._step is _Step.END_OF_CHUNK:
            end_of_line = bytes(buffer[position : position + len(END_OF_LINE)])
            if not END_OF_LINE.startswith(end_of_line):
                raise Refused(400)
            if len(end_of_line) == len(END_OF_LINE):
                self._position, self._step = position + len(END_OF_LINE), _Step.SIZE
        elif buffer[position : position + len(END_OF_LINE)] == END_OF_LINE:
            return position + len(END_OF_LINE)
        else:
            trailer_end = buffer.find(END_OF_HEAD, position, position + TRAILER_BYTES_MAX)
            if trailer_end >= 0:
                return trailer_end + len(END_OF_HEAD)
            if len(buffer) - position >= TRAILER_BYTES_MAX:
                raise Refused(431)
        return None

    def _read_size(self, buffer: bytearray, position: int) -> None:
        end = buffer.find(END_OF_LINE, position, position + CHUNK_LINE_BYTES_MAX)
        if end < 0:
            if len(buffer) - position >= CHUNK_LINE_BYTES_MAX:
                raise Refused(400)
            return
        match = _CHUNK_SIZE.fullmatch(buffer, position, end)
        if match is None:
            raise Refused(400)
        size = int(match[1], 16)
        data_start = end + len(END_OF_LINE)
        self._position = data_start + size
        self._step = _Step.END_OF_CHUNK if size else _Step.TRAILER
