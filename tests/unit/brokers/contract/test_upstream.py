"""Settings of an upstream: addresses, their file, and what is never shown."""

from __future__ import annotations

import pytest

from brokers.contract.upstream import UpstreamSettings, parse_servers, tls_context

SETTINGS = UpstreamSettings(
    bootstrap_servers="kafka-1:9092,[::1]:9093", security_protocol="SASL_SSL", username="u", password="secret"
)


def test_addresses_are_read_and_anything_else_is_refused() -> None:
    assert parse_servers("kafka-1:9092, [::1]:9093") == [("kafka-1", 9092), ("::1", 9093)]
    for text in ("", "kafka-1", ":9092", "kafka-1:x", "kafka-1:0", "kafka-1:65536", "kafka-1:9092,"):
        with pytest.raises(ValueError, match="not host:port"):
            parse_servers(text)


def test_the_file_has_all_settings_and_fields_of_later_versions_are_ignored() -> None:
    assert UpstreamSettings.from_json(SETTINGS.to_json()) == SETTINGS
    assert UpstreamSettings.from_json('{"bootstrap_servers": "a:1", "later": 1}').bootstrap_servers == "a:1"


def test_no_secret_is_in_its_representation() -> None:
    assert "secret" not in repr(SETTINGS)


def test_an_unusable_certificate_is_refused_and_without_tls_none_is_read() -> None:
    with pytest.raises((OSError, ValueError)):
        tls_context(UpstreamSettings(bootstrap_servers="a:1", security_protocol="SSL", client_certificate="x"))
    assert tls_context(UpstreamSettings(bootstrap_servers="a:1", client_certificate="x")) is None
