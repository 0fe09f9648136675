"""Requirement of a public URL if other machines are served."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.checks import run_checks

from config import public_url
from config.embedded.process import StartFailed
from config.supervisor import preflight
from config.supervisor.options import UpOptions


@pytest.mark.parametrize(
    ("url", "hosts", "is_wrong"),
    [
        ("http://127.0.0.1:8000", [], False),
        ("", [], False),
        ("", ["localhost", "127.0.0.1", "::1"], False),
        ("", ["console.example.com"], True),
        ("http://127.0.0.1:8000", ["localhost", "console.example.com"], True),
        ("http://localhost:8000", ["*"], True),
        ("http://[::1]:8000", ["10.0.0.7"], True),
        ("https://console.example.com", ["console.example.com", "10.0.0.7"], False),
    ],
)
def test_hosts_beyond_loopback_need_a_public_url(url: str, hosts: list[str], is_wrong: bool) -> None:
    assert (public_url.problem(url, hosts) is not None) == is_wrong


def test_a_start_for_others_without_a_public_url_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ALLOWED_HOSTS", "console.example.com")
    monkeypatch.delenv("PENSTOCK_PUBLIC_URL", raising=False)
    with pytest.raises(StartFailed, match="PENSTOCK_PUBLIC_URL is not set"):
        preflight.check(UpOptions(state_dir=tmp_path))


def test_the_system_checks_say_it_too(monkeypatch: pytest.MonkeyPatch, settings: pytest.FixtureRequest) -> None:
    monkeypatch.setenv("PENSTOCK_ALLOWED_HOSTS", "console.example.com")
    assert "penstock.E001" in [message.id for message in run_checks(tags=["security"])]
    settings.PUBLIC_URL = "https://console.example.com"  # type: ignore[attr-defined]
    settings.MAIL_IS_CONFIGURED = False  # type: ignore[attr-defined]
    found = [message.id for message in run_checks(tags=["security"], include_deployment_checks=True)]
    assert "penstock.E001" not in found
    assert "penstock.W001" in found
