"""The audit log: one row per change, immutable, and without secrets."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from tenants import audit, services
from tenants.actors import member_actor, operator_actor, system_actor
from tenants.choices import Role, SuspensionReason
from tenants.errors import Conflict, PermissionDenied
from tenants.models import AppendOnlyError, AuditEntry
from tests.testkit.api_cases import Api, assert_problem, make_member, make_user

pytestmark = pytest.mark.django_db


def test_no_way_of_django_rewrites_or_deletes_an_entry() -> None:
    make_member()
    entry = AuditEntry.objects.first()
    assert entry is not None
    for rewrite in (entry.save, entry.delete, AuditEntry.objects.all().delete):
        with pytest.raises(AppendOnlyError):
            rewrite()
    with pytest.raises(AppendOnlyError):
        AuditEntry.objects.update(action="nothing")


@pytest.mark.parametrize("statement", ["UPDATE tenants_auditentry SET action = 'x'", "DELETE FROM tenants_auditentry"])
def test_the_database_itself_refuses(statement: str) -> None:
    make_member()
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


def test_values_under_secret_words_are_hidden_at_any_depth() -> None:
    after = {"password": "p", "user": {"client_secret": "s", "name": "n"}, "list": [{"private_key": "k"}]}
    entry = audit.record(system_actor("test"), "thing.made", ("thing", "t-1"), None, after)
    assert entry.after == {
        "password": "(hidden)",
        "user": {"client_secret": "(hidden)", "name": "n"},
        "list": [{"private_key": "(hidden)"}],
    }


def test_a_difference_names_only_what_changed() -> None:
    assert audit.difference({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4}) == ({"b": 2, "c": 3}, {"b": 5, "d": 4})


def test_the_log_is_filtered_by_action_actor_target_and_time() -> None:
    owner = make_member()
    api = Api.of(owner)
    start = timezone.now()
    with time_machine.travel(start + timedelta(hours=1), tick=False):
        made = api.post("/tokens", {"name": "x", "scopes": ["members:read"]}).json()
    later = (start + timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for query, count in (
        ("action=token.created", 2), (f"target_id={made['id']}", 1), (f"since={later}", 1), (f"until={later}", 3),
        (f"actor_id={owner.user_id}", 3), ("action=nothing", 0),
    ):  # fmt: skip
        items = api.get(f"/audit?{query}").json()["items"]
        assert len(items) == count, (query, items)
    newest = api.get("/audit").json()["items"][0]
    assert newest["action"] == "token.created"
    assert newest["actor"]["kind"] == "token"
    assert newest["target"] == {"type": "apitoken", "id": made["id"]}
    assert newest["after"]["name"] == "x"
    assert newest["ip"] == "127.0.0.1"


def test_a_tenant_reads_its_own_log_only() -> None:
    entry, other = make_member(), make_member()
    listed = {item["target"]["id"] for item in Api.of(entry).get("/audit").json()["items"]}
    assert entry.pk in listed
    assert other.pk not in listed


def test_a_refused_change_leaves_no_entry() -> None:
    owner = make_member()
    before = AuditEntry.objects.count()
    with pytest.raises(Conflict):
        services.remove_member(acting=member_actor(owner), member=owner)
    assert AuditEntry.objects.count() == before


@pytest.mark.parametrize(
    ("reason", "status", "code"), [("unpaid", 402, "payment_required"), ("abuse", 403, "tenant_suspended")]
)
def test_a_suspended_tenant_reads_and_does_not_write(reason: str, status: int, code: str) -> None:
    owner = make_member()
    api = Api.of(owner)
    services.suspend_tenant(
        acting=operator_actor(make_user(is_staff=True)), tenant=owner.tenant, reason=SuspensionReason(reason)
    )
    assert api.get("/members").status_code == 200
    assert_problem(api.post("/tokens", {"name": "x", "scopes": ["members:read"]}), status, code)
    services.resume_tenant(acting=system_actor("payments"), tenant=owner.tenant)
    assert api.post("/tokens", {"name": "x", "scopes": ["members:read"]}).status_code == 201


def test_a_tenant_cannot_suspend_or_resume_itself() -> None:
    owner = make_member(Role.OWNER)
    with pytest.raises(PermissionDenied):
        services.suspend_tenant(acting=member_actor(owner), tenant=owner.tenant, reason=SuspensionReason.ABUSE)
    with pytest.raises(PermissionDenied):
        services.resume_tenant(acting=member_actor(owner), tenant=owner.tenant)
