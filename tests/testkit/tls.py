"""An authority and a certificate for brokers of tests, and what a client needs of them."""

from __future__ import annotations

import ssl
from pathlib import Path

from brokers.infra.certificates import ensure_ca, ensure_certificate


def make_certificate(directory: Path, name: str = "broker") -> Path:
    """Key and certificate for 127.0.0.1, below an authority in `directory` (`ca.pem`)."""
    ensure_ca(directory)
    result = ensure_certificate(directory, name, ["127.0.0.1"])
    assert result is not None
    return result


def client_context(directory: Path, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """Trusts the authority in `directory`, and speaks one version alone if told so."""
    context = ssl.create_default_context(cafile=directory / "ca.pem")
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context
