"""With which certificate this broker shows itself to clients: read anew when the file is replaced."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from brokers.contract.routes import RouteDocument

log = structlog.get_logger(__name__)

RELOAD_INTERVAL_S: Final = 10.0
# For clients of TLS 1.2; those of 1.3 have no others.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


class TlsContexts:
    """`route_sessions.TlsContexts`. Connections keep the context of their handshake. `file` has key and certificate."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._context: ssl.SSLContext | None = None
        self._read: tuple[int, int] | None = None

    def __call__(self, route: RouteDocument) -> Callable[[], ssl.SSLContext] | None:
        if self._context is None:
            self.reload()
        return None if self._context is None else self._current

    def _current(self) -> ssl.SSLContext:
        assert self._context is not None, "a route is opened when there is one"
        return self._context

    def reload(self) -> None:
        """Takes up another certificate. One that cannot be used leaves the one before in force. To be called often."""
        if self._file is None:
            return
        try:
            status = self._file.stat()
        except OSError:
            return
        seen = status.st_mtime_ns, status.st_ino
        if seen == self._read:
            return
        self._read = seen
        try:
            self._context = server_context(self._file)
        except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
            log.error("tls_certificate_not_usable", file=self._file.name, reason=str(error))
        else:
            log.info("tls_certificate_read", file=self._file.name)


def server_context(file: Path) -> ssl.SSLContext:
    """TLS 1.2 and 1.3, resumption by tickets, no renegotiation. Raises OSError where the file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.load_cert_chain(file)
    return context
