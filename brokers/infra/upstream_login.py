"""Login for the upstream of a Kafka cluster, encrypted in the database (`tenants.second_factor.adapter.cipher`)."""

from __future__ import annotations

from cryptography.fernet import InvalidToken
from django.utils.translation import gettext_noop

from brokers.contract.upstream import UpstreamSettings
from brokers.models import KafkaBackend
from tenants.errors import Unavailable
from tenants.second_factor.adapter import cipher


def upstream_of(row: KafkaBackend) -> UpstreamSettings:
    """Returns the addresses with the secrets, which must not appear in any response, page, log or exception.

    Raises `Unavailable` after a change of SECRET_KEY without the former key.
    """
    return UpstreamSettings(
        bootstrap_servers=row.bootstrap_servers,
        security_protocol=row.security_protocol,
        sasl_mechanism=row.sasl_mechanism,
        username=row.username,
        password=_decrypt(row.password_sealed),
        ca_pem=row.ca_pem,
        client_certificate=_decrypt(row.client_certificate_sealed),
    )


def assign_upstream(row: KafkaBackend, upstream: UpstreamSettings) -> None:
    """Copies addresses and login to the row, and encrypts the secrets."""
    row.bootstrap_servers = upstream.bootstrap_servers
    row.security_protocol = upstream.security_protocol
    row.sasl_mechanism = upstream.sasl_mechanism
    row.username = upstream.username
    row.ca_pem = upstream.ca_pem
    row.password_sealed = _encrypt(upstream.password)
    row.client_certificate_sealed = _encrypt(upstream.client_certificate)


def _encrypt(secret: str) -> str:
    return cipher().encrypt(secret.encode()).decode() if secret else ""


def _decrypt(sealed: str) -> str:
    try:
        return cipher().decrypt(sealed.encode()).decode() if sealed else ""
    except InvalidToken:
        raise Unavailable(
            gettext_noop("The login for the upstream was encrypted with another SECRET_KEY: enter it again.")
        ) from None
