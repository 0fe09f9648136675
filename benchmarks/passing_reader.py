"""A reader of a whole log that costs its machine almost nothing: it reads batch headers and discards the records.

  python -m benchmarks.passing_reader HOST:PORT --topic T --until OFFSET [--keep]

A consumer usually has a machine of its own. Where it shares the broker's, bytes that this machine has not touched since
they were read from the disk are expensive, and the first process that copies them pays: several times what the broker
spends on them, on the cores that a neighbour waits for. The reader therefore has the kernel drop the records
(`MSG_TRUNC`, tcp(7)) as if they had left by a network; with `--keep` it copies them as a consumer on the same machine
would. It prints one JSON line: when it began and ended (`time.monotonic`), and the number of bytes received.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from struct import Struct
from typing import Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.records import batch as layout

FETCH_VERSION: Final = 11
FETCH_BYTES: Final = 1_048_576
# Correlation id, throttle time, error, session id, count, length of the name; then, after the name: count, index,
# error, three offsets, count of transactions, preferred replica, size of the records.
_HEAD: Final = Struct(">i i h i i h")
_PARTITION: Final = Struct(">i i h q q q i i i")
_SIZE: Final = Struct(">i")


class Connection:
    """A connection that receives piece by piece into a preallocated buffer."""

    def __init__(self, sock: socket.socket, *, keep: bool) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(2 * FETCH_BYTES))
        self._discard_flag = 0 if keep else socket.MSG_TRUNC
        self.received_bytes = 0

    def receive(self, count: int) -> memoryview:
        """Returns the next `count` bytes; valid until the next call."""
        self._receive(count, 0)
        return self._buffer[:count]

    def discard(self, count: int) -> None:
        """Receives the next `count` bytes, and discards them unless they are kept."""
        self._receive(count, self._discard_flag)

    def _receive(self, count: int, flags: int) -> None:
        filled_bytes = 0
        while filled_bytes < count:
            received_bytes = self._sock.recv_into(
                self._buffer[filled_bytes:], count - filled_bytes, socket.MSG_WAITALL | flags
            )
            if not received_bytes:
                raise SystemExit("the broker closed the connection")
            filled_bytes += received_bytes
        self.received_bytes += count


def fetch(topic: str, offset: int) -> bytes:
    """Returns a framed request for partition 0 from `offset`."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[FetchTopic(topic=topic, partitions=[partition])], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip
    body = encode_request(ApiKey.FETCH, FETCH_VERSION, request)
    return encode_request_frame(ApiKey.FETCH, FETCH_VERSION, 1, "reader", body)


def next_offset(connection: Connection, topic: str, offset: int) -> int:
    """Reads one response; returns the offset after its last whole batch, `offset` if it has none, as at the log end."""
    (left_bytes,) = _SIZE.unpack(connection.receive(_SIZE.size))
    head_bytes = _HEAD.size + len(topic) + _PARTITION.size
    if left_bytes < head_bytes:  # no partition at all
        connection.discard(left_bytes)
        return offset
    head = connection.receive(head_bytes)
    left_bytes -= head_bytes
    error = _HEAD.unpack_from(head)[2] or _PARTITION.unpack_from(head, _HEAD.size + len(topic))[2]
    if error:
        raise SystemExit(f"the broker answered with error {error}")
    while left_bytes >= layout.HEADER_BYTES:
        header = layout.read_header(connection.receive(layout.HEADER_BYTES))
        left_bytes -= layout.HEADER_BYTES
        records_bytes = header.size_bytes - layout.HEADER_BYTES
        if records_bytes > left_bytes:
            break  # truncated because the response was full
        connection.discard(records_bytes)
        left_bytes -= records_bytes
        offset = header.next_offset
    connection.discard(left_bytes)
    return offset


def read(bootstrap: str, topic: str, end_offset: int, *, keep: bool) -> dict[str, float]:
    """Reads the log from its start to `end_offset`."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    offset = 0
    with socket.create_connection((host, int(port))) as sock:
        connection = Connection(sock, keep=keep)
        started_s = time.monotonic()
        while offset < end_offset:
            sock.sendall(fetch(topic, offset))
            offset = next_offset(connection, topic, offset)
        return {"began": started_s, "ended": time.monotonic(), "received_bytes": connection.received_bytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bootstrap", metavar="HOST:PORT", help="a broker without authentication")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--until", type=int, required=True, metavar="OFFSET", help="where the log ends")
    parser.add_argument("--keep", action="store_true", help="copy the records, as a consumer on this machine would")
    args = parser.parse_args()
    print(json.dumps(read(args.bootstrap, args.topic, args.until, keep=args.keep)))


if __name__ == "__main__":
    main()
