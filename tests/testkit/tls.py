"""An authority and a certificate for brokers of tests, and TLS contexts of clients."""

from __future__ import annotations

import ssl
from pathlib import Path

from brokers.contract.process_identity import CA_FILE, ProcessIdentity
from brokers.infra.certificates import ensure_ca, ensure_certificate, ensure_internal_ca, ensure_process_certificate


def make_certificate(directory: Path, name: str = "broker") -> Path:
    """Creates key and certificate for 127.0.0.1, below an authority in `directory` (`ca.pem`)."""
    ensure_ca(directory)
    result = ensure_certificate(directory, name, ["127.0.0.1"])
    assert result is not None
    return result


def client_context(directory: Path, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """Returns a context that trusts the authority in `directory`, restricted to one version if given."""
    context = ssl.create_default_context(cafile=directory / "ca.pem")
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def process_file(directory: Path, process: ProcessIdentity) -> Path:
    """Creates key and certificate of a process, below an authority for our own processes in `directory`."""
    ensure_internal_ca(directory)
    result = ensure_process_certificate(directory, process)
    assert result is not None
    return result


def process_context(directory: Path, process: ProcessIdentity) -> ssl.SSLContext:
    """Returns the TLS context with which a process connects to a broker."""
    return context_with(process_file(directory, process), directory / CA_FILE)


def context_with(certificate: Path | None, authority: Path) -> ssl.SSLContext:
    """Returns a context that trusts the authority for any host name, and shows the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context
