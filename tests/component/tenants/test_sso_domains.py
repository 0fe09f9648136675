"""Proofs of e-mail domains: a tenant's provider signs in people of domains that the tenant controls alone."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tenants import services
from tenants.choices import Role
from tenants.limits import (
    DNS_DEADLINE_S,
    DOMAIN_CHECK_AGAIN_AFTER_H,
    DOMAIN_PROOF_KEPT_DAYS,
    SSO_REQUESTS_PER_TENANT_AT_ONCE_MAX,
)
from tenants.models import AuditEntry, DomainProof, Member, Tenant, User
from tenants.sso import domains
from tenants.sso.protocol import SsoFailed
from tests.testkit.api_cases import PASSWORD, Api, assert_problem, make_member, make_tenant, make_user, owner_of
from tests.testkit.dns_server import NameServer
from tests.testkit.oidc import Provider
from tests.testkit.sso import assert_refused, body_of, dns, name_server, process, provider, sign_in, tenant

__all__ = ["dns", "name_server", "process", "provider", "tenant"]
pytestmark = pytest.mark.django_db
NAME = domains.record_name("example.com")
DAY = timedelta(hours=DOMAIN_CHECK_AGAIN_AFTER_H, minutes=1)


def proof_of(tenant: Tenant) -> DomainProof:
    return DomainProof.objects.get(tenant=tenant, domain="example.com")


def publish(dns: NameServer, proof: DomainProof) -> None:
    dns.records[NAME] = [[domains.record_value(proof.challenge)]]


@pytest.fixture()
def unproved(provider: Provider) -> Tenant:
    member = make_member(Role.ADMIN)
    assert Api.of(member).put("/sso", body_of(provider)).status_code == 200
    return member.tenant


def test_nobody_signs_in_with_an_address_of_a_domain_that_is_not_proved(
    provider: Provider, dns: NameServer, unproved: Tenant
) -> None:
    Member.objects.create(tenant=unproved, user=make_user("ada@example.com"), role=Role.VIEWER)
    api = Api.of(Member.objects.get(tenant=unproved, role=Role.ADMIN))
    browser = Client()
    assert_refused(sign_in(browser, provider, unproved), browser, "has not proved")
    refusal = AuditEntry.objects.get(tenant=unproved, action="sso.refused")
    assert refusal.after is not None
    assert refusal.after["reason"] == "unproved_domain"
    listed = api.get("/sso").json()["domain_proofs"]
    assert [(row["domain"], row["record_name"], row["proved_at"]) for row in listed] == [("example.com", NAME, None)]
    missing = assert_problem(api.post("/sso/domains:prove", {"domain": "example.com"}), 409, "record_missing")
    assert listed[0]["record_value"] in missing["detail"]
    dns.records[NAME] = [["v=spf1 -all"], [listed[0]["record_value"]]]
    assert api.post("/sso/domains:prove", {"domain": "Example.com "}).json()["proved_at"] is not None
    assert sign_in(browser, provider, unproved).status_code == 302


def test_no_account_is_made_with_an_address_of_somebody_elses_domain(
    provider: Provider, dns: NameServer, unproved: Tenant
) -> None:
    body = body_of(provider, role_claim="groups", roles=[{"value": "kafka", "role": "admin"}])
    Api.of(owner_of(unproved)).put("/sso", body)
    provider.set(claims={"groups": "kafka"})
    browser = Client()
    assert_refused(sign_in(browser, provider, unproved), browser, "has not proved")
    assert not User.objects.filter(email="ada@example.com").exists()


@pytest.mark.parametrize(
    "records",
    [
        [],
        [["penstock-domain-verification="]],
        [["x" * 255] * 8],
        [["penstock-domain-verification=" + "0" * 32]],
        [["{value} "]],
        [[" {value}"], ["{VALUE}"]],
    ],
)
def test_another_record_proves_nothing(
    dns: NameServer, provider: Provider, unproved: Tenant, records: list[list[str]]
) -> None:
    value = domains.record_value(proof_of(unproved).challenge)
    dns.records[NAME] = [
        [part.replace("{value}", value).replace("{VALUE}", value.upper()) for part in strings] for strings in records
    ]
    answer = Api.of(owner_of(unproved)).post("/sso/domains:prove", {"domain": "example.com"})
    assert_problem(answer, 409, "record_missing")


def test_a_record_of_one_tenant_proves_nothing_for_another(
    provider: Provider, dns: NameServer, unproved: Tenant
) -> None:
    other = make_tenant("Other")
    Api.of(owner_of(other)).put("/sso", body_of(provider))
    publish(dns, proof_of(unproved))
    mine, theirs = Api.of(owner_of(unproved)), Api.of(owner_of(other))
    assert_problem(theirs.post("/sso/domains:prove", {"domain": "example.com"}), 409, "record_missing")
    assert mine.post("/sso/domains:prove", {"domain": "example.com"}).status_code == 200
    assert proof_of(other).proved_at is None
    # Both may prove it: a company has several tenants.
    dns.records[NAME].append([domains.record_value(proof_of(other).challenge)[:20]])
    dns.records[NAME][-1].append(domains.record_value(proof_of(other).challenge)[20:])
    assert theirs.post("/sso/domains:prove", {"domain": "example.com"}).status_code == 200


def test_a_domain_that_was_taken_off_the_list_is_proved_anew(
    provider: Provider, dns: NameServer, unproved: Tenant
) -> None:
    api = Api.of(owner_of(unproved))
    publish(dns, proof_of(unproved))
    assert api.post("/sso/domains:prove", {"domain": "example.com"}).status_code == 200
    api.put("/sso", body_of(provider, client_id="another"))
    assert proof_of(unproved).proved_at is not None, "other changes keep it"
    api.put("/sso", body_of(provider, domains=["example.org"]))
    api.put("/sso", body_of(provider))
    assert proof_of(unproved).proved_at is None
    assert_problem(api.post("/sso/domains:prove", {"domain": "example.com"}), 409, "record_missing")
    assert_problem(api.post("/sso/domains:prove", {"domain": "example.org"}), 400)


def test_a_dns_that_fails_is_an_answer_and_no_proof(provider: Provider, dns: NameServer, unproved: Tenant) -> None:
    dns.failing_names.add(NAME)
    api = Api.of(owner_of(unproved))
    problem = assert_problem(api.post("/sso/domains:prove", {"domain": "example.com"}), 503, "unavailable")
    assert "no answer" in problem["detail"]
    assert proof_of(unproved).proved_at is None


def test_slow_name_servers_of_one_tenant_hold_few_threads_for_bounded_time_and_no_neighbour(
    dns: NameServer, settings: Any
) -> None:
    dns.silent_names.add(domains.record_name("slow.example.com"))
    dns.records[NAME] = [[domains.record_value("c")]]
    begun, reasons = time.monotonic(), []

    def ask() -> None:
        try:
            domains.has_record("ten-slow", "slow.example.com", "c")
        except SsoFailed as failed:
            reasons.append(failed.reason)

    askers = [threading.Thread(target=ask) for _ in range(6)]
    for asker in askers:
        asker.start()
    assert domains.has_record("ten-neighbour", "example.com", "c")
    assert time.monotonic() - begun < DNS_DEADLINE_S / 2
    for asker in askers:
        asker.join()
    assert time.monotonic() - begun < DNS_DEADLINE_S + 2
    assert reasons.count("dns_unreachable") == SSO_REQUESTS_PER_TENANT_AT_ONCE_MAX
    assert reasons.count("busy") == len(askers) - SSO_REQUESTS_PER_TENANT_AT_ONCE_MAX


def test_a_proof_lapses_a_week_after_its_record_is_gone_and_not_while_the_dns_is_silent(
    provider: Provider, dns: NameServer, tenant: Tenant
) -> None:
    now = timezone.now()
    assert services.recheck_domains(now) == 0, "it was checked today"
    assert proof_of(tenant).missing_since is None
    dns.failing_names.add(NAME)
    for day in range(1, DOMAIN_PROOF_KEPT_DAYS + 3):
        assert services.recheck_domains(now + day * DAY) == 0
    assert (proof_of(tenant).missing_since, proof_of(tenant).proved_at is None) == (None, False)
    dns.failing_names.clear()
    gone = now + (DOMAIN_PROOF_KEPT_DAYS + 3) * DAY
    assert services.recheck_domains(gone) == 0
    assert proof_of(tenant).missing_since == gone
    publish(dns, proof_of(tenant))
    assert services.recheck_domains(gone + DAY) == 0
    assert proof_of(tenant).missing_since is None, "the record is back"
    dns.clear()
    for day in range(2, DOMAIN_PROOF_KEPT_DAYS + 2):
        assert services.recheck_domains(gone + day * DAY) == 0, day
    assert services.recheck_domains(gone + (DOMAIN_PROOF_KEPT_DAYS + 2) * DAY) == 1
    assert proof_of(tenant).proved_at is None
    assert AuditEntry.objects.filter(tenant=tenant, action="sso.domain_lapsed").count() == 1
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "has not proved")


def test_the_page_shows_the_record_and_checks_it(provider: Provider, dns: NameServer, unproved: Tenant) -> None:
    browser = Client()
    browser.post("/accounts/login/", {"login": owner_of(unproved).user.email, "password": PASSWORD})
    page = browser.get("/settings/sso/").content.decode()
    assert NAME in page
    assert domains.record_value(proof_of(unproved).challenge) in page
    asked = browser.post("/settings/sso/domains/prove/", {"domain": "example.com"}, follow=True)
    assert "has no TXT record" in asked.content.decode()
    publish(dns, proof_of(unproved))
    asked = browser.post("/settings/sso/domains/prove/", {"domain": "example.com"}, follow=True)
    assert "example.com is proved" in asked.content.decode()
    viewer = Client()
    viewer.force_login(make_member(Role.VIEWER, unproved).user)
    assert viewer.post("/settings/sso/domains/prove/", {"domain": "example.com"}).status_code == 403
