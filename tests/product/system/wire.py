"""A bare Kafka connection for unusual requests: any call, any version, any bytes."""

from __future__ import annotations

import socket
from typing import Any

from brokers.engine.protocol import codec
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame

ANSWER_TIMEOUT_S = 10.0


class Wire:
    """One connection to `host:port`; answers are read whole and in order."""

    def __init__(self, address: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call_raw(self, api_key: int, version: int, message: Any, client_id: str | None = "test") -> bytes | None:
        """Returns the answer frame without its size, or None if the broker closed the connection."""
        self.correlation_id += 1
        body = codec.encode_request(api_key, version, message)
        self.socket.sendall(encode_request_frame(api_key, version, self.correlation_id, client_id, body))
        return self.read_frame()

    def call(self, api_key: int, version: int, message: Any, client_id: str | None = "test") -> Any:
        """Returns the decoded answer."""
        frame = self.call_raw(api_key, version, message, client_id)
        assert frame is not None, f"api {api_key} version {version}: the connection was closed"
        correlation_id, offset = decode_response_header(api_key, version, frame, 0, len(frame))
        assert correlation_id == self.correlation_id
        return codec.decode_response(api_key, version, frame, offset)

    def read_frame(self) -> bytes | None:
        size = self._read(4)
        return None if size is None else self._read(int.from_bytes(size, "big"))

    def _read(self, count: int) -> bytes | None:
        result = bytearray()
        while len(result) < count:
            try:
                part = self.socket.recv(count - len(result))
            except ConnectionResetError:
                return None
            if not part:
                return None
            result += part
        return bytes(result)
