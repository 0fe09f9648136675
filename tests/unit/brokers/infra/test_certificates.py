"""The authority of an installation, and the certificates of its brokers: made, renewed, named as clients know them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from brokers.contract.process_identity import ProcessIdentity, broker, control
from brokers.infra.certificates import (
    CA_KEY_FILE,
    CERTIFICATE_DAYS,
    RENEWAL_DAYS,
    ensure_ca,
    ensure_certificate,
    ensure_internal_ca,
    ensure_process_certificate,
)

NOW = datetime(2026, 11, 25, tzinfo=UTC)


@pytest.fixture()
def directory(tmp_path: Path) -> Path:
    ensure_ca(tmp_path / "tls", NOW)
    return tmp_path / "tls"


def read(file: Path | None) -> x509.Certificate:
    assert file is not None
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_the_authority_is_made_once_and_its_files_are_for_their_owner_alone(directory: Path) -> None:
    before = (directory / CA_KEY_FILE).read_bytes()
    ensure_ca(directory, NOW + timedelta(days=1))
    ensure_certificate(directory, "cl-1", ["127.0.0.1"], NOW)
    assert (directory / CA_KEY_FILE).read_bytes() == before
    assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_certificate_is_signed_by_the_authority_and_names_every_host(directory: Path) -> None:
    certificate = read(ensure_certificate(directory, "cl-1", ["kafka.example", "192.0.2.1", "2001:db8::1"], NOW))
    certificate.verify_directly_issued_by(read(directory / "ca.pem"))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka.example", "localhost"]
    assert sorted(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "192.0.2.1", "2001:db8::1"]


def test_it_is_kept_while_it_serves_and_renewed_before_it_ends(directory: Path) -> None:
    def serial(now: datetime, *hosts: str) -> int:
        return read(ensure_certificate(directory, "cl-1", hosts, now)).serial_number

    first = serial(NOW, "kafka.example")
    last_day = NOW + timedelta(days=CERTIFICATE_DAYS - RENEWAL_DAYS, seconds=-1)
    assert serial(last_day, "kafka.example") == first
    assert serial(last_day, "127.0.0.1") == first
    assert serial(last_day + timedelta(seconds=2), "kafka.example") != first


def test_another_host_or_a_torn_file_makes_it_anew(directory: Path) -> None:
    file = ensure_certificate(directory, "cl-1", ["a.example"], NOW)
    first = read(file).serial_number
    second = read(ensure_certificate(directory, "cl-1", ["a.example", "b.example"], NOW)).serial_number
    assert first != second
    assert file is not None
    file.write_bytes(file.read_bytes()[:100])
    assert read(ensure_certificate(directory, "cl-1", ["a.example"], NOW)).serial_number not in (first, second)


def test_without_the_authoritys_key_what_somebody_put_there_is_used(directory: Path) -> None:
    file = ensure_certificate(directory, "cl-1", ["a.example"], NOW)
    (directory / CA_KEY_FILE).unlink()
    assert ensure_certificate(directory, "cl-1", ["b.example"], NOW) == file
    assert ensure_certificate(directory, "cl-2", ["b.example"], NOW) is None


def test_openssl_takes_both(directory: Path) -> None:
    file = ensure_certificate(directory, "cl-1", ["127.0.0.1"])
    assert file is not None
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
    ssl.create_default_context(cafile=directory / "ca.pem")


def test_our_own_processes_have_an_authority_apart_and_only_brokers_serve_with_it(tmp_path: Path) -> None:
    tenants, internal = tmp_path / "tls", tmp_path / "internal"
    ensure_ca(tenants, NOW)
    ensure_internal_ca(internal, NOW)
    assert (tenants / "ca_key.pem").read_bytes() != (internal / "ca_key.pem").read_bytes()

    def made(process: ProcessIdentity) -> tuple[list[str], set[x509.ObjectIdentifier]]:
        certificate = read(ensure_process_certificate(internal, process, ["10.0.0.1"], NOW))
        certificate.verify_directly_issued_by(read(internal / "ca.pem"))
        with pytest.raises(ValueError, match="Issuer"):
            certificate.verify_directly_issued_by(read(tenants / "ca.pem"))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        return names.get_values_for_type(x509.UniformResourceIdentifier), set(purposes)

    client, server = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
    assert made(broker("cl-a1b2c3d4", 1)) == (["urn:penstock:broker:cl-a1b2c3d4:1"], {client, server})
    assert made(control("web")) == (["urn:penstock:control:web"], {client})
