"""An undecoded request in the buffer of its connection, for handlers with the fast codec."""

from __future__ import annotations


class RawRequest:
    """A request frame, `buffer[start:end]`, whose body begins at `body`. The buffer is reused after the request."""

    __slots__ = ("body", "buffer", "client_id", "correlation_id", "end", "start", "version")

    def __init__(
        self,
        version: int,
        correlation_id: int,
        client_id: str | None,
        buffer: memoryview,
        body: int,
        start: int,
        end: int,
    ) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.buffer = buffer
        self.body = body
        self.start = start
        self.end = end

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def copy(self) -> RawRequest:
        """Returns a copy with its own buffer, to be processed later."""
        start = self.start
        frame = memoryview(bytearray(self.buffer[start : self.end]))
        return RawRequest(
            self.version, self.correlation_id, self.client_id, frame, self.body - start, 0, self.end - start
        )
