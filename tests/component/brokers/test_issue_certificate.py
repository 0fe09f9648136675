"""The command `issue_certificate`: the files that it writes, and its errors."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from cryptography import x509
from django.core.management import CommandError, call_command


@pytest.fixture()
def directory(tmp_path: Path, settings: object) -> Path:
    settings.INTERNAL_TLS_DIR = tmp_path / "internal"  # type: ignore[attr-defined]
    return tmp_path / "internal"


def test_a_metrics_reader_is_given_one_file_and_the_authority(directory: Path) -> None:
    said = StringIO()
    call_command("issue_certificate", "metrics", "prometheus", stdout=said)
    file = directory / "metrics-prometheus.pem"
    assert str(file) in said.getvalue()
    assert str(directory / "ca.pem") in said.getvalue()
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes()))
    assert file.stat().st_mode & 0o077 == 0


def test_a_broker_of_another_host_is_given_its_hosts_name(directory: Path) -> None:
    call_command("issue_certificate", "broker", "cl-a1b2c3d4:4", "--host", "10.0.0.14", stdout=StringIO())
    file = directory / "broker-cl-a1b2c3d4-4.pem"
    names = x509.load_pem_x509_certificate(file.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "10.0.0.14" in {str(name.value) for name in names.value}


@pytest.mark.parametrize(
    ("role", "name", "words"),
    [
        ("broker", "4", "CLUSTER:NUMBER"),
        ("broker", "../4:1", "CLUSTER:NUMBER"),
        ("control", "somebody", "web, worker"),
        ("metrics", "../../up", "hyphens"),
    ],
)
def test_a_name_that_is_none_is_refused_and_makes_nothing(directory: Path, role: str, name: str, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command("issue_certificate", role, name, stdout=StringIO())
    assert not directory.exists()


def test_without_the_authoritys_key_it_says_where_to_run(directory: Path) -> None:
    call_command("issue_certificate", "metrics", "one", stdout=StringIO())
    (directory / "ca_key.pem").unlink()
    with pytest.raises(CommandError, match="Run this where it is"):
        call_command("issue_certificate", "metrics", "two", stdout=StringIO())
