"""The client's address behind trusted and unknown proxies, and headers that a form cannot send."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from config.embedded.process import StartFailed
from config.middleware import ClientAddressMiddleware
from config.supervisor import preflight
from config.supervisor.options import UpOptions
from config.web.addresses import networks
from tenants.requests import client_ip

SAID = {
    "HTTP_X_FORWARDED_FOR": "192.0.2.66, 203.0.113.9",
    "HTTP_X_FORWARDED_PROTO": "https",
    "HTTP_X_FORWARDED_HOST": "evil.example",
}


@pytest.fixture
def behind_proxy(settings: Any) -> None:
    settings.TRUSTED_PROXIES = networks("10.0.0.0/24")
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")


def asked_from(peer: str) -> HttpRequest:
    """Returns a request in the form that views get."""
    seen: list[HttpRequest] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse()

    ClientAddressMiddleware(view)(RequestFactory().get("/", REMOTE_ADDR=peer, **SAID))
    return seen[0]


def test_a_trusted_proxy_is_believed(behind_proxy: None) -> None:
    request = asked_from("10.0.0.2")
    assert (client_ip(request), request.is_secure()) == ("203.0.113.9", True)


def test_nobody_else_is_believed(behind_proxy: None) -> None:
    request = asked_from("198.51.100.7")
    assert (client_ip(request), request.is_secure()) == ("198.51.100.7", False)
    assert not any(name in request.META for name in SAID)


def test_without_proxies_nobody_is_believed() -> None:
    assert client_ip(asked_from("127.0.0.1")) == "127.0.0.1"


def test_a_proxy_that_is_none_and_https_without_one_are_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TRUSTED_PROXIES", "proxy.internal")
    with pytest.raises(StartFailed, match=r"proxy\.internal"):
        preflight.check(UpOptions(state_dir=tmp_path))
    monkeypatch.setenv("PENSTOCK_TRUSTED_PROXIES", "")
    monkeypatch.setenv("PENSTOCK_PUBLIC_URL", "https://console.example")
    with pytest.raises(StartFailed, match="no proxy is trusted"):
        preflight.check(UpOptions(state_dir=tmp_path))


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/accounts/login/", "/operator/login/"])
def test_a_form_with_a_file_is_refused(path: str) -> None:
    file = io.BytesIO(b"x" * 10_000)
    file.name = "file.bin"
    response = Client().post(path, {"login": "ida@example.com", "file": file})
    assert response.status_code == 400
