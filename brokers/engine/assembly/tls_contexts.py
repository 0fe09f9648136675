"""How this broker shows itself to clients, and what it asks of them: a context for each way of doing so."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from brokers.contract.certificates import ROUTE_KEYS_FILE, CertificatesDocument

log = structlog.get_logger(__name__)

RELOAD_INTERVAL_S: Final = 10.0
# For clients of TLS 1.2; those of 1.3 have no others.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


class TlsContexts:
    """Of one broker. `file` has its key and its certificate, and is read anew when it is replaced. Connections keep the
    context of their handshake.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._context: ssl.SSLContext | None = None
        self._read: tuple[int, int] | None = None

    @property
    def own(self) -> ssl.SSLContext | None:
        """With this broker's own certificate, for routes that ask nothing of clients; None: it has none."""
        if self._context is None:
            self.reload()
        return self._context

    def for_own(self) -> ssl.SSLContext:
        assert self._context is not None, "a route is opened when there is one"
        return self._context

    def make(self, document: CertificatesDocument, *, asks_clients: bool) -> ssl.SSLContext:
        """Of a route with certificates of its own. Takes some milliseconds, in a thread. Raises OSError."""
        if not document.certificate_pem:
            assert self._file is not None, "a route is opened when there is one"
            context = server_context(self._file)
        else:
            with _as_file(document.private_key_pem + document.certificate_pem) as file:
                context = server_context(file, self.key_password())
        if asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            # What is in the list is trusted, whether it signed itself or not, as in Java's trust stores.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if document.client_ca_pem:
                context.load_verify_locations(cadata=document.client_ca_pem)
        return context

    def key_password(self) -> bytes | None:
        """What private keys of uploaded certificates are encrypted with; None: this broker does not know it."""
        if self._file is None:
            return None
        try:
            return self._file.with_name(ROUTE_KEYS_FILE).read_bytes().strip() or None
        except OSError:
            return None

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


def server_context(file: Path, password: bytes | None = None) -> ssl.SSLContext:
    """TLS 1.2 and 1.3, resumption by tickets, no renegotiation. Raises OSError where the file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Without a password OpenSSL would ask for one at the terminal.
    context.load_cert_chain(file, password=password or b"")
    return context


@contextmanager
def _as_file(content: str) -> Iterator[Path]:
    """OpenSSL's module reads keys from files alone. Where the system has such files, it is in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate")
        try:
            os.write(descriptor, content.encode())
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # for its owner alone
            file.write(content.encode())
            file.flush()
            yield Path(file.name)
