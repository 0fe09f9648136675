"""TLS handshakes of strangers: `python -m tests.adversarial.handshake_swarm KIND PORT PER_MINUTE SECONDS`.

KIND is `whole` (completes each), `aborted` (closes at the server's answer), `halved` (stops in the middle of its hello
and stays open), `longest` (sends the longest possible hello), or `renegotiating` (requests another handshake after the
first). Prints the number of each result as one JSON line.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

HOST: Final = "127.0.0.1"
NICENESS: Final = 10
PATIENCE_S: Final = 5.0
KINDS: Final = ("whole", "aborted", "halved", "longest", "renegotiating")
# Half-open connections stay open, and the number of descriptors of this process is limited.
OPEN_SOCKETS_MAX: Final = 500

_RECORD_BYTES_MAX: Final = 16_384
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SUITES: Final = 32_767
_PADDING, _SUPPORTED_VERSIONS, _GROUPS, _SIGNATURES, _KEY_SHARE = 21, 43, 10, 13, 51
_EXTENSIONS_BYTES_MAX: Final = 65_535


def _extension(kind: int, body: bytes) -> bytes:
    return struct.pack(">HH", kind, len(body)) + body


def longest_hello() -> bytes:
    """Returns a ClientHello with the maximum number of cipher suites and extensions; the last suite is a
    supported one.
    """
    suites = struct.pack(">H", 0x5A5A) * (_SUITES - 2) + struct.pack(">HH", 0xC02B, 0x1302)
    known = b"".join(
        (
            _extension(_GROUPS, struct.pack(">HHH", 4, 23, 29)),
            _extension(_SIGNATURES, struct.pack(">HHH", 4, 0x0403, 0x0804)),
            _extension(_SUPPORTED_VERSIONS, b"\x04\x03\x04\x03\x03"),
        )
    )
    extensions = known + _extension(_PADDING, bytes(_EXTENSIONS_BYTES_MAX - len(known) - 4))
    body = b"".join(
        (
            b"\x03\x03", os.urandom(32), b"\x20", os.urandom(32),
            struct.pack(">H", len(suites)), suites, b"\x01\x00",
            struct.pack(">H", len(extensions)), extensions,
        )
    )  # fmt: skip
    return _records(bytes([_CLIENT_HELLO]) + len(body).to_bytes(3, "big") + body)


def _records(message: bytes) -> bytes:
    pieces = (message[at : at + _RECORD_BYTES_MAX] for at in range(0, len(message), _RECORD_BYTES_MAX))
    return b"".join(struct.pack(">BHH", _HANDSHAKE, 0x0301, len(piece)) + piece for piece in pieces)


def client_context() -> ssl.SSLContext:
    """Returns a context that does not verify the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ordinary_hello() -> bytes:
    """Returns an ordinary ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = client_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


def whole(port: int) -> str:
    with _connect(port) as plain, client_context().wrap_socket(plain, server_hostname=HOST) as secured:
        return secured.version() or "none"


def aborted(port: int) -> str:
    with _connect(port) as plain:
        plain.sendall(ordinary_hello())
        return "answered" if plain.recv(1) else "closed"


def longest(port: int) -> str:
    with _connect(port) as plain:
        plain.sendall(longest_hello())
        kind = plain.recv(1)
        return {b"\x15": "alert", b"\x16": "answered", b"": "closed"}.get(kind, kind.hex())


def renegotiating(port: int) -> str:
    """Renegotiates with OpenSSL's own client, which does so when it reads an R."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return "no openssl here"
    client = subprocess.run(
        [openssl, "s_client", "-connect", f"{HOST}:{port}", "-tls1_2"],
        input=b"R\n" * 20, capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    output = client.stdout + client.stderr
    if b"no renegotiation" in output or b"renegotiation" in output.split(b"RENEGOTIATING")[-1].lower():
        return "refused"
    return f"ended with {client.returncode}"


_open_sockets: list[socket.socket] = []


def halved(port: int) -> str:
    if len(_open_sockets) >= OPEN_SOCKETS_MAX:
        _open_sockets.pop(0).close()
    plain = _connect(port)
    plain.sendall(ordinary_hello()[:100])
    _open_sockets.append(plain)
    return "left open"


def _connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), PATIENCE_S)


ATTEMPTS: Final[dict[str, Callable[[int], str]]] = {
    "whole": whole,
    "aborted": aborted,
    "halved": halved,
    "longest": longest,
    "renegotiating": renegotiating,
}


def attempts(kind: str, port: int, per_minute: int, seconds: float) -> Iterator[str]:
    """Yields the result of each handshake. Late handshakes are not caught up on."""
    due_s, ends_s = time.monotonic(), time.monotonic() + seconds
    while (now_s := time.monotonic()) < ends_s:
        if now_s < due_s:
            time.sleep(due_s - now_s)
        due_s = max(due_s, now_s - 1.0) + 60 / per_minute
        try:
            yield ATTEMPTS[kind](port)
        except (OSError, subprocess.SubprocessError) as error:
            yield type(error).__name__


def main() -> None:
    kind, port, per_minute, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    os.nice(NICENESS)
    counts = Counter(attempts(kind, port, per_minute, seconds))
    for plain in _open_sockets:
        plain.close()
    print(json.dumps({"kind": kind, "attempts": counts.total(), **counts}), flush=True)


if __name__ == "__main__":
    main()
