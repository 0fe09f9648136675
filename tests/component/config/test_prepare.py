"""The command `prepare` for a service manager: it creates what is missing, and nothing the second time."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.models import Plan
from config.environment import Environment


@pytest.mark.django_db(transaction=False)
def test_secrets_certificates_and_plans_are_there_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    for name in ("SECRET_KEY", "PENSTOCK_TLS_DIR", "PENSTOCK_INTERNAL_TLS_DIR"):
        monkeypatch.delenv(name, raising=False)
    call_command("prepare")
    made = {file: file.read_bytes() for file in (tmp_path / "state" / "secrets").rglob("*") if file.is_file()}
    names = {file.relative_to(tmp_path / "state" / "secrets").as_posix() for file in made}
    assert {"secret_key", "tls/ca.pem", "internal_tls/ca.pem", "internal_tls/control-web.pem"} <= names
    assert {stat.S_IMODE(file.stat().st_mode) for file in made} == {0o600}
    assert Plan.objects.exists()
    assert Environment.read().secret_key_is_kept
    plans = Plan.objects.count()
    call_command("prepare")
    assert {file: file.read_bytes() for file in made} == made
    assert Plan.objects.count() == plans
