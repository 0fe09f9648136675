"""Tokens: shown once, stored as a hash, narrow, and invalid at once when revoked, expired or orphaned."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import time_machine
from django.core import serializers as django_serializers
from django.db import connection
from django.utils import timezone

from tenants.choices import Role
from tenants.limits import TOKENS_PER_TENANT_MAX
from tenants.models import ApiToken, AuditEntry, IdempotencyRecord, Invitation, Member
from tests.testkit.api_cases import Api, assert_problem, make_member, make_token

pytestmark = pytest.mark.django_db
BODY = {"name": "ci", "scopes": ["members:read"]}


@pytest.fixture()
def owner() -> Member:
    return make_member()


def test_the_secret_is_in_the_first_answer_and_nowhere_after(
    owner: Member, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    api = Api.of(owner)
    made = api.post("/tokens", BODY, Idempotency_Key="k-1").json()
    secret = made["secret"]
    assert secret.startswith(made["prefix"])
    assert Api(secret).get("/members").status_code == 200
    for path in (f"/tokens/{made['id']}", "/tokens", "/audit"):
        assert secret not in api.get(path).content.decode()
    everything = [*ApiToken.objects.all(), *AuditEntry.objects.all(), *IdempotencyRecord.objects.all()]
    assert secret not in django_serializers.serialize("json", everything)
    assert secret not in caplog.text
    assert secret not in "".join(capfd.readouterr())


def test_the_secret_of_an_invitation_is_kept_as_a_hash_only(owner: Member) -> None:
    made = Api.of(owner).post("/members", {"email": "g@example.com", "role": "viewer"}, Idempotency_Key="k-1").json()
    secret = made["accept_url"].rstrip("/").rsplit("/", 1)[1]
    everything = [*Invitation.objects.all(), *AuditEntry.objects.all(), *IdempotencyRecord.objects.all()]
    assert secret not in django_serializers.serialize("json", everything)


def test_a_dry_run_makes_no_secret(owner: Member) -> None:
    answer = Api.of(owner).post("/tokens?dry_run=true", BODY)
    assert answer.json()["secret"] is None


def test_a_token_cannot_grant_more_than_it_has(owner: Member) -> None:
    narrow = Api.of(owner, ["tokens:write", "members:read"])
    assert narrow.post("/tokens", BODY).status_code == 201
    wide = {"name": "wider", "scopes": ["members:write", "members:read"]}
    assert_problem(narrow.post("/tokens", wide), 403, "scope_too_wide")


def test_a_developer_cannot_make_a_token_that_manages_members(owner: Member) -> None:
    developer = Api.of(make_member(Role.DEVELOPER, owner.tenant))
    assert_problem(developer.post("/tokens", {"name": "x", "scopes": ["members:write"]}), 403, "scope_too_wide")


def test_a_revoked_an_expired_and_an_inactive_persons_token_are_401(owner: Member) -> None:
    api = Api.of(owner)
    in_an_hour = (timezone.now() + timedelta(hours=1)).isoformat()
    made = api.post("/tokens", {**BODY, "expires_at": in_an_hour}).json()
    short_lived = Api(made["secret"])
    assert short_lived.get("/members").status_code == 200
    with time_machine.travel(timezone.now() + timedelta(hours=2), tick=False):
        assert_problem(short_lived.get("/members"), 401)
    assert api.delete(f"/tokens/{made['id']}").status_code == 204
    assert_problem(short_lived.get("/members"), 401)
    assert_problem(api.delete(f"/tokens/{made['id']}"), 404)
    owner.user.is_active = False
    owner.user.save()
    assert_problem(api.get("/members"), 401)


@pytest.mark.parametrize("expires_at", ["2020-01-01T00:00:00Z", "2999-01-01T00:00:00", "soon", 5])
def test_an_expiry_must_be_an_instant_to_come_with_its_offset(owner: Member, expires_at: object) -> None:
    problem = assert_problem(Api.of(owner).post("/tokens", {**BODY, "expires_at": expires_at}), 400)
    assert problem["errors"][0]["pointer"] == "/expires_at"


def test_a_developer_revokes_own_tokens_only(owner: Member) -> None:
    developer = make_member(Role.DEVELOPER, owner.tenant)
    api = Api.of(developer)
    own = api.post("/tokens", BODY).json()["id"]
    others = Api.of(owner).post("/tokens", BODY).json()["id"]
    assert_problem(api.delete(f"/tokens/{others}"), 403)
    assert api.delete(f"/tokens/{own}").status_code == 204


def test_last_use_is_noted_to_the_minute(owner: Member) -> None:
    secret = make_token(owner)
    start = timezone.now()
    with time_machine.travel(start, tick=False):
        Api(secret).get("/members")
    with time_machine.travel(start + timedelta(seconds=30), tick=False):
        Api(secret).get("/members")
    assert ApiToken.objects.get().last_used_at == start
    with time_machine.travel(start + timedelta(seconds=61), tick=False):
        Api(secret).get("/members")
    assert ApiToken.objects.get().last_used_at == start + timedelta(seconds=61)


def test_tokens_are_bounded(owner: Member) -> None:
    secret = make_token(owner)
    token = ApiToken.objects.get()
    ApiToken.objects.bulk_create(
        ApiToken(tenant=owner.tenant, member=owner, name="n", prefix="p", secret_hash=f"{n:064}", scopes=token.scopes)
        for n in range(TOKENS_PER_TENANT_MAX - 1)
    )
    assert_problem(Api(secret).post("/tokens", BODY), 403, "quota_exceeded")


def test_a_session_call_needs_the_csrf_token_and_a_token_call_does_not(owner: Member) -> None:
    session = Api(user=owner.user)
    session.client.handler.enforce_csrf_checks = True
    assert session.get("/members").status_code == 200
    assert_problem(session.post("/tokens", BODY), 403, "csrf_failed")
    by_token = Api.of(owner)
    by_token.client.handler.enforce_csrf_checks = True
    assert by_token.post("/tokens", BODY).status_code == 201


def test_a_session_chooses_its_tenant_by_header_and_only_among_its_own(owner: Member) -> None:
    other = Member.objects.create(tenant=make_member().tenant, user=owner.user, role=Role.VIEWER)
    session = Api(user=owner.user)
    mine = {item["tenant"] for item in _tenants(session)}
    assert mine == {owner.tenant_id, other.tenant_id}
    names = session.get("/members", Penstock_Tenant=other.tenant_id).json()["items"]
    assert owner.user.email in {item["email"] for item in names}
    assert_problem(session.get("/members", Penstock_Tenant=make_member().tenant_id), 403, "no_tenant")
    assert_problem(session.post("/tokens", BODY, Penstock_Tenant=other.tenant_id), 403)


def _tenants(api: Api) -> list[dict[str, str]]:
    return [{"tenant": item["id"], "role": item["role"]} for item in api.get("/tenants").json()["items"]]


def test_the_list_of_tenants_names_your_role_in_each(owner: Member) -> None:
    other = Member.objects.create(tenant=make_member().tenant, user=owner.user, role=Role.VIEWER)
    assert {(item["tenant"], item["role"]) for item in _tenants(Api(user=owner.user))} == {
        (owner.tenant_id, "owner"),
        (other.tenant_id, "viewer"),
    }
    assert _tenants(Api.of(owner)) == [{"tenant": owner.tenant_id, "role": "owner"}]


def test_the_secret_is_never_sent_to_the_database(owner: Member) -> None:
    connection.force_debug_cursor = True
    try:
        before = len(connection.queries_log)
        secret = make_token(owner)
        sent = json.dumps([query["sql"] for query in list(connection.queries_log)[before:]])
    finally:
        connection.force_debug_cursor = False
    assert "tenants_apitoken" in sent
    assert secret not in sent


def test_a_token_does_nothing_in_the_name_of_another_tenant(owner: Member) -> None:
    """A token used for the named tenant would change its own tenant instead."""
    api, other = Api.of(owner), make_member()
    Member.objects.create(tenant=other.tenant, user=owner.user, role=Role.OWNER)
    for named in (other.tenant_id, "ten-00000000", "x"):
        assert_problem(api.get("/members", Penstock_Tenant=named), 403, "no_tenant")
        assert_problem(api.post("/tokens", BODY, Penstock_Tenant=named), 403, "no_tenant")
    assert api.post("/tokens", BODY, Penstock_Tenant=owner.tenant_id).status_code == 201
