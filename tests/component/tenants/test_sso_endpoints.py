"""Guarantees of the endpoint of single sign-on, with a provider that answers."""

from __future__ import annotations

from typing import Any

import pytest

from tenants.choices import Scope
from tenants.models import DomainProof, Member, SsoConfiguration
from tenants.sso.domains import record_name, record_value
from tests.testkit.api_cases import Case, EndpointCases, pytest_generate_tests
from tests.testkit.dns_server import NameServer
from tests.testkit.oidc import Provider
from tests.testkit.sso import body_of, dns, name_server, process, provider

__all__ = ["dns", "name_server", "process", "provider", "pytest_generate_tests"]

BODY: dict[str, Any] = {"issuer": "of the running provider"}


@pytest.mark.django_db
class TestSingleSignOn(EndpointCases):
    cases = (
        Case("GET", "/sso", Scope.MEMBERS_READ),
        Case("PUT", "/sso", Scope.MEMBERS_WRITE, body=BODY),
        Case("POST", "/sso/domains:prove", Scope.MEMBERS_WRITE, body={"domain": "example.com"}),
        Case("DELETE", "/sso", Scope.MEMBERS_WRITE, status=204),
    )

    @pytest.fixture(autouse=True)
    def running(self, provider: Provider, dns: NameServer) -> None:
        BODY.update(body_of(provider))
        dns.records[record_name("example.com")] = [[record_value("before")]]

    def places(self, owner: Member) -> dict[str, str]:
        SsoConfiguration.objects.create(
            tenant=owner.tenant, issuer="https://login.example.com", client_id="before", domains=["example.com"]
        )
        DomainProof.objects.create(tenant=owner.tenant, domain="example.com", challenge="before")
        return {}
