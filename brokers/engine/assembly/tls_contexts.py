"""TLS contexts of this broker: one with its own certificate, and those of routes with other or client certificates."""

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
# Cipher suites for TLS 1.2; the suites of TLS 1.3 are fixed.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


class TlsContexts:
    """TLS contexts of one broker. `file` has its key and its certificate, and is reloaded when it was replaced; open
    connections continue with the context of their handshake.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._context: ssl.SSLContext | None = None
        self._read: tuple[int, int] | None = None

    @property
    def own_context(self) -> ssl.SSLContext | None:
        """Returns the context with this broker's own certificate, for routes without client certificates; None if the
        broker has no usable certificate.
        """
        if self._context is None:
            self.reload()
        return self._context

    def required_own_context(self) -> ssl.SSLContext:
        """Returns the context `own_context`, which must exist."""
        assert self._context is not None, "a route is opened only with a context"
        return self._context

    def make_context(self, document: CertificatesDocument, *, asks_clients: bool) -> ssl.SSLContext:
        """Returns a context for a route with certificates of its own, or with client certificates (`asks_clients`).

        Runs in a thread. Raises OSError if a certificate or key cannot be used.
        """
        if not document.certificate_pem:
            assert self._file is not None, "a route is opened when there is one"
            context = server_context(self._file)
        else:
            with _as_file(document.private_key_pem + document.certificate_pem) as file:
                context = server_context(file, self.key_password())
        if asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            # Every listed certificate is trusted, self-signed or not, as in Java's trust stores.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if document.client_ca_pem:
                context.load_verify_locations(cadata=document.client_ca_pem)
        return context

    def key_password(self) -> bytes | None:
        """Returns the password of the private keys of uploaded certificates; None if this broker does not have it."""
        if self._file is None:
            return None
        try:
            return self._file.with_name(ROUTE_KEYS_FILE).read_bytes().strip() or None
        except OSError:
            return None

    def reload(self) -> None:
        """Reloads a replaced certificate; if the new one is unusable, the former one stays in use. Called every
        RELOAD_INTERVAL_S.
        """
        if self._file is None:
            return
        try:
            status = self._file.stat()
        except OSError:
            return
        status_key = status.st_mtime_ns, status.st_ino
        if status_key == self._read:
            return
        self._read = status_key
        try:
            self._context = server_context(self._file)
        except (OSError, ValueError) as error:  # ssl's errors are OSErrors
            log.error("tls_certificate_not_usable", file=self._file.name, reason=str(error))
        else:
            log.info("tls_certificate_read", file=self._file.name)


def server_context(file: Path, password: bytes | None = None) -> ssl.SSLContext:
    """Returns a context with TLS 1.2 and 1.3, tickets, no renegotiation. Raises OSError if the file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Without a password OpenSSL would prompt for one on the terminal.
    context.load_cert_chain(file, password=password or b"")
    return context


@contextmanager
def _as_file(content: str) -> Iterator[Path]:
    """Yields a file with this content, in memory if possible, since `ssl` reads keys from files only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate")
        try:
            os.write(descriptor, content.encode())
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
            file.write(content.encode())
            file.flush()
            yield Path(file.name)
