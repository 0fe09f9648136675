"""Fixtures and helpers of tests that sign in at an OpenID provider (`tests.testkit.oidc_provider`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache

from config.environment import BASE_DIR
from tenants import services
from tenants.actors import member_actor
from tenants.models import SsoConfiguration, Tenant
from tests.testkit.api_cases import make_tenant, owner_of
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


def body_of(provider: Provider, **fields: Any) -> dict[str, Any]:
    return {
        "issuer": provider.issuer, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET,
        "domains": ["example.com"], **fields,
    }  # fmt: skip


def configure(tenant: Tenant, provider: Provider, **fields: Any) -> SsoConfiguration:
    return services.set_sso(acting=member_actor(owner_of(tenant)), **body_of(provider, **fields))


@pytest.fixture()
def tenant(provider: Provider) -> Tenant:
    tenant = make_tenant()
    configure(tenant, provider)
    return tenant
