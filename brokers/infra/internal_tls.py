"""Client side of internal TLS, by which the control plane connects to brokers with its own certificate (decision 106).

Contexts are recreated when the files are replaced; connections keep the context of their handshake.
"""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from brokers.contract.process_identity import CA_FILE, ProcessIdentity, identity_in


class CertificateFiles(NamedTuple):
    """Key and certificate of this process, and the common authority."""

    certificate: Path
    authority: Path


class _CachedContext(NamedTuple):
    file_states: tuple[object, ...]
    context: ssl.SSLContext


_lock = threading.Lock()
_cached_contexts: dict[CertificateFiles, _CachedContext] = {}


def own_files() -> CertificateFiles:
    """Returns the files of this process."""
    return CertificateFiles(Path(settings.INTERNAL_CERTIFICATE_FILE), Path(settings.INTERNAL_TLS_DIR) / CA_FILE)


def client_context() -> ssl.SSLContext:
    """Returns the client context. Raises OSError if there is no certificate, or it cannot be used."""
    files = own_files()
    file_states = tuple((status.st_mtime_ns, status.st_ino) for status in map(Path.stat, files))
    with _lock:
        cached = _cached_contexts.get(files)
        if cached is None or cached.file_states != file_states:
            cached = _cached_contexts[files] = _CachedContext(file_states, _new_context(files))
        return cached.context


def _new_context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate identifies its process by role and number, not by host name.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate)
    return context


def wrap_socket(plain: socket.socket, peer: ProcessIdentity) -> ssl.SSLSocket:
    """Returns a connected socket wrapped in TLS, if the other side is `peer`; closes it otherwise. Raises OSError."""
    try:
        result = client_context().wrap_socket(plain)
    except OSError:
        plain.close()
        raise
    identity = identity_in(result.getpeercert())
    if identity != peer:
        result.close()
        raise ConnectionRefusedError(0, f"its certificate is not that of {peer.uri}")
    return result
