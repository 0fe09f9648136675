"""Fixtures and helpers of tests that sign in at an OpenID provider (`tests.testkit.oidc_provider`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from config.environment import BASE_DIR
from tenants import services
from tenants.actors import member_actor
from tenants.models import DomainProof, SsoConfiguration, Tenant
from tests.testkit.api_cases import make_tenant, owner_of
from tests.testkit.dns_server import NameServer
from tests.testkit.oidc import CLIENT_ID, CLIENT_SECRET, Provider


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    directory: Path = tmp_path_factory.mktemp("oidc")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.testkit.oidc_provider", str(directory)],
        cwd=BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        port = running.stdout.readline().strip()
        assert port, "the provider did not start"
        yield Provider(f"https://127.0.0.1:{port}", str(directory / "ca.pem"))
        running.kill()


@pytest.fixture()
def provider(process: Provider, settings: Any) -> Provider:
    settings.OUTBOUND_PRIVATE_ADDRESSES = (ip_network("127.0.0.0/8"),)
    settings.OUTBOUND_CA_FILE = process.ca_file
    cache.clear()
    process.set()
    return process


@pytest.fixture(scope="module")
def name_server() -> Iterator[NameServer]:
    with NameServer() as running:
        yield running


@pytest.fixture()
def dns(name_server: NameServer, settings: Any) -> NameServer:
    settings.DNS_SERVERS = (name_server.address,)
    name_server.clear()
    return name_server


def body_of(provider: Provider, **fields: Any) -> dict[str, Any]:
    return {
        "issuer": provider.issuer, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET,
        "domains": ["example.com"], **fields,
    }  # fmt: skip


def configure(tenant: Tenant, provider: Provider, **fields: Any) -> SsoConfiguration:
    """Sets single sign-on up, with domains that are proved."""
    body = body_of(provider, **fields)
    acting = member_actor(owner_of(tenant))
    if body.pop("required", False):
        services.set_sso(acting=acting, **body)
        prove_all(tenant)
        body["required"] = True
    sso = services.set_sso(acting=acting, **body)
    prove_all(tenant)
    return sso


def prove_all(tenant: Tenant) -> None:
    now = timezone.now()
    DomainProof.objects.filter(tenant=tenant, proved_at=None).update(proved_at=now, checked_at=now)


@pytest.fixture()
def tenant(provider: Provider) -> Tenant:
    tenant = make_tenant()
    configure(tenant, provider)
    return tenant


def begin_sign_in(browser: Client, tenant: Tenant, **query: str) -> str:
    response = browser.get(f"/sso/{tenant.slug}/", query)
    assert response.status_code == 302, response.content.decode()
    return str(response["Location"])


def follow_redirect(browser: Client, provider: Provider, url: str) -> Any:
    """Follows the provider's redirect to the callback."""
    parts = urlsplit(provider.authorize(url))
    return browser.get(f"{parts.path}?{parts.query}")


def sign_in(browser: Client, provider: Provider, tenant: Tenant) -> Any:
    return follow_redirect(browser, provider, begin_sign_in(browser, tenant))


def is_signed_in(browser: Client) -> bool:
    return "_auth_user_id" in browser.session


def assert_refused(response: Any, browser: Client, words: str, status: int = 403) -> None:
    assert response.status_code == status, response.content
    assert words in response.content.decode()
    assert not is_signed_in(browser)
