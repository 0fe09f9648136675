"""Users of an instance over REST: passwords shown once, two at a time, full access, expiry, and disconnections."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.models import AuditEntry, IdempotencyRecord, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_users import CREATED_AT_MS, FakeUsers, secret
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture()
def at(instance: Instance) -> str:
    return f"/instances/{instance.pk}/users"


def made(api: Api, at: str, **body: Any) -> dict[str, Any]:
    answer = api.post(at, {"name": "etl", **body})
    assert answer.status_code == 201, answer.content
    result: dict[str, Any] = answer.json()
    return result


def test_a_user_is_made_with_a_password_that_is_shown_once(
    api: Api, at: str, instance: Instance, users: FakeUsers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = made(api, at)
    assert shown["secret"]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    password = shown["secret"]["password"]
    assert users.passwords == {shown["secret"]["id"]: password}
    assert len(password) >= 32
    assert (shown["state"], shown["superuser"], shown["expires_at"], shown["last_used_at"]) == (
        "active", False, None, None,
    )  # fmt: skip
    for later in (api.get(f"{at}/etl"), api.get(at)):
        assert password not in later.content.decode()
    rows = json.dumps([[entry.before, entry.after] for entry in AuditEntry.objects.all()])
    assert password not in rows
    assert shown["secret"]["id"] in rows
    assert password not in caplog.text


def test_a_repeated_creation_makes_no_second_user_and_does_not_repeat_the_password(
    api: Api, at: str, users: FakeUsers
) -> None:
    first = api.post(at, {"name": "etl"}, Idempotency_Key="a").json()
    again = api.post(at, {"name": "etl"}, Idempotency_Key="a")
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == {**first, "secret": {**first["secret"], "password": None}}
    assert first["secret"]["password"] not in json.dumps(IdempotencyRecord.objects.get().body)
    assert len(users.passwords) == 1


def test_a_dry_run_makes_nobody_and_shows_no_password(api: Api, at: str, users: FakeUsers) -> None:
    answer = api.post(f"{at}?dry_run=true", {"name": "etl"})
    assert answer.status_code == 201
    assert answer.json()["secret"]["password"] is None
    assert not users.users_by_key


@pytest.mark.parametrize("name", ["ANONYMOUS", "*", " a", "a\n", "\u6c34" * 29])
def test_a_name_that_no_user_may_have_is_refused(api: Api, at: str, users: FakeUsers, name: str) -> None:
    problem = assert_problem(api.post(at, {"name": name}), 400, "invalid_request")
    assert problem["errors"][0]["pointer"] == "/name"
    assert not users.users_by_key


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (".", "mean a folder"),
        ("..", "mean a folder"),
        ("\u0430dmin", "several alphabets"),  # Cyrillic a
        ("admi\u0578", "several alphabets"),  # Armenian vo
        ("\u039fracle", "several alphabets"),  # Greek omicron
        ("\u13aadmin", "several alphabets"),  # Cherokee go
        ("\u0430\u03b1", "several alphabets"),
        ("\uff41dmin", "normal form"),  # full width
        ("\U0001d41admin", "normal form"),  # mathematical bold
        ("\ufb01le", "normal form"),  # ligature
        ("e\u0301tl", "normal form"),  # a combining accent
        ("\u212balice", "normal form"),
    ],
)
def test_a_name_that_looks_like_another_or_leads_elsewhere_is_refused_with_the_rule(
    api: Api, at: str, users: FakeUsers, name: str, rule: str
) -> None:
    problem = assert_problem(api.post(at, {"name": name}), 400, "invalid_request")
    assert (problem["errors"][0]["pointer"], problem["errors"][0]["code"]) == ("/name", "invalid_name")
    assert rule in problem["errors"][0]["detail"]
    assert not users.users_by_key


@pytest.mark.parametrize(
    "name",
    [
        "\u0430\u043d\u043d\u0430",
        "\u5361\u592b\u5361-etl",
        "\u00e9tl",
        "\u30ab\u30d5\u30ab\u6c34",
        "\u039f-1",
        "...",
        "a.b",
    ],
)
def test_names_in_one_alphabet_may_be_used(api: Api, at: str, users: FakeUsers, name: str) -> None:
    made(api, at, name=name)
    assert [own for _instance, own in users.users_by_key] == [name]


@pytest.mark.parametrize("name", [".", "..", "\u0430dmin", "\uff41dmin"])
def test_a_user_of_a_name_that_is_refused_today_can_be_read_and_deleted(
    api: Api, at: str, instance: Instance, users: FakeUsers, name: str
) -> None:
    """Kafka's own tools can create such users."""
    users.add(instance.pk, name)
    own = f"{at}/{quote(name, safe='').replace('.', '%2E')}"
    assert api.get(own).json()["name"] == name
    assert api.patch(own, {"disabled": True}).status_code == 200
    assert api.delete(own).status_code == 204
    assert api.get(own).status_code == 404
    assert api.post(f"{own}/restore").status_code == 204
    assert api.delete(f"{own}?for_good=true").status_code == 204
    assert not users.users_by_key


@pytest.mark.parametrize("name", ["a/secrets", "a b", "50%", "\u5361\u592b\u5361", "a?b#c"])
def test_a_user_of_any_name_has_its_own_address(api: Api, at: str, users: FakeUsers, name: str) -> None:
    made(api, at, name=name)
    own = f"{at}/{quote(name, safe='')}"
    assert api.get(own).json()["name"] == name
    assert api.post(f"{own}/secrets").status_code == 201
    assert api.delete(own).status_code == 204
    assert api.get(own).status_code == 404
    assert api.post(f"{own}/restore").status_code == 204
    assert api.delete(f"{own}?for_good=true").status_code == 204
    assert not users.users_by_key


def test_there_is_one_user_of_a_name(api: Api, at: str) -> None:
    made(api, at)
    problem = assert_problem(api.post(at, {"name": "etl"}), 409, "already_exists")
    assert problem["errors"][0]["pointer"] == "/name"


def test_a_user_expires_later_or_never_but_not_before_now(api: Api, at: str, users: FakeUsers) -> None:
    soon = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert made(api, at, expires_at=soon)["expires_at"] is not None
    assert api.patch(f"{at}/etl", {"expires_at": None}).json()["expires_at"] is None
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    problem = assert_problem(api.patch(f"{at}/etl", {"expires_at": past}), 400)
    assert problem["errors"][0]["pointer"] == "/expires_at"
    assert_problem(api.post(at, {"name": "late", "expires_at": past}), 400)


def test_a_user_past_its_expiry_is_shown_as_expired(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "old", expires_at_ms=CREATED_AT_MS - 10**12)
    assert api.get(f"{at}/old").json()["state"] == "expired"


def test_a_change_is_audited_with_values_before_and_after(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    users.add(instance.pk, "etl")
    shown = api.patch(f"{at}/etl", {"superuser": True, "disabled": True}).json()
    assert (shown["superuser"], shown["disabled"], shown["state"]) == (True, True, "disabled")
    entry = AuditEntry.objects.get(action="user.changed")
    assert entry.target_id == f"{instance.pk}/users/etl"
    assert entry.before == {"superuser": False, "disabled": False}
    assert entry.after == {"superuser": True, "disabled": True}
    assert api.patch(f"{at}/etl", {"disabled": True}).status_code == 200
    assert AuditEntry.objects.filter(action="user.changed").count() == 1


def test_a_change_under_an_older_version_is_not_made(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "etl")
    read = api.get(f"{at}/etl")["ETag"]
    assert api.patch(f"{at}/etl", {"disabled": True}, If_Match=read).status_code == 200
    assert_problem(api.patch(f"{at}/etl", {"superuser": True}, If_Match=read), 412)
    assert_problem(api.delete(f"{at}/etl", If_Match=read), 412)
    assert not users.users_by_key[instance.pk, "etl"].superuser


def test_a_version_outlives_the_use_of_a_user(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "etl", last_used_at_ms=None, connections=0)
    read = api.get(f"{at}/etl")["ETag"]
    users.add(instance.pk, "etl", last_used_at_ms=CREATED_AT_MS, connections=9)
    assert api.patch(f"{at}/etl", {"disabled": True}, If_Match=read).status_code == 200


def test_a_password_is_rotated_by_a_second_one(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    first = made(api, at)["secret"]
    second = api.post(f"{at}/etl/secrets").json()
    assert second["password"] != first["password"]
    assert [item["id"] for item in api.get(f"{at}/etl").json()["secrets"]] == [first["id"], second["id"]]
    problem = assert_problem(api.post(f"{at}/etl/secrets"), 403, "quota_exceeded")
    assert "Remove the old one first" in problem["detail"]
    assert api.delete(f"{at}/etl/secrets/{first['id']}").status_code == 204
    assert [item.id for item in users.users_by_key[instance.pk, "etl"].secrets] == [second["id"]]
    assert_problem(api.delete(f"{at}/etl/secrets/{first['id']}"), 404)
    assert_problem(api.delete(f"{at}/etl/secrets/{second['id']}"), 409, "last_secret")
    api.patch(f"{at}/etl", {"disabled": True})
    assert api.delete(f"{at}/etl/secrets/{second['id']}").status_code == 204
    assert {entry.action for entry in AuditEntry.objects.filter(target_id=f"{instance.pk}/users/etl")} == {
        "user.created", "user.secret_added", "user.secret_removed", "user.changed",
    }  # fmt: skip


def test_a_second_password_is_not_repeated_either(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "etl")
    first = api.post(f"{at}/etl/secrets", Idempotency_Key="b").json()
    again = api.post(f"{at}/etl/secrets", Idempotency_Key="b").json()
    assert first["password"]
    assert again == {**first, "password": None}


def test_a_deletion_says_what_was_there(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "etl", superuser=True, secrets=(secret("sec-1"), secret("sec-2")))
    assert api.delete(f"{at}/etl").status_code == 204
    entry = AuditEntry.objects.get(action="user.deleted")
    assert entry.before == {
        "superuser": True, "disabled": False, "expires_at": None, "key_ids": ["sec-1", "sec-2"],
    }  # fmt: skip
    assert set(entry.after) == {"restorable_until"}
    assert_problem(api.delete(f"{at}/etl"), 404)


def test_users_are_listed_by_name_in_pages_and_silence_is_said(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    for name in ("c", "a", "b"):
        users.add(instance.pk, name)
    users.add(make_running(make_member().tenant).pk, "foreign")
    users.silent = (BrokerUnresponsive(broker_id=2, reason="does not answer"),)
    page = api.get(f"{at}?page_size=2").json()
    assert [item["name"] for item in page["items"]] == ["a", "b"]
    assert page["silent"] == [{"broker_id": 2, "reason": "does not answer"}]
    rest = api.get(f"{at}?page_size=2&page_token={page['next_page_token']}").json()
    assert [item["name"] for item in rest["items"]] == ["c"]
    assert rest["next_page_token"] is None
    assert [item["name"] for item in api.get(f"{at}?contains=A").json()["items"]] == ["a"]


def test_a_change_that_nobody_answered_is_kept_in_the_ledger(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    users.is_lost = True
    assert_problem(api.post(at, {"name": "etl"}, Idempotency_Key="c"), 503, "outcome_unknown")
    entry = AuditEntry.objects.get(action="user.created")
    assert (entry.after or {})["outcome"] == "unknown"
    assert not IdempotencyRecord.objects.exists()


def test_users_of_an_instance_without_brokers_are_not_asked_for(api: Api, at: str, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(phase="requested")
    assert_problem(api.get(at), 409, "instance_not_reachable")
    assert_problem(api.post(at, {"name": "etl"}), 409, "instance_not_reachable")


def test_brokers_that_do_not_answer_are_said(api: Api, at: str, users: FakeUsers) -> None:
    users.is_down = True
    assert_problem(api.get(at), 503, "unavailable")


@pytest.mark.parametrize("at_ms", [2**63 - 1, 253_402_300_799_000, -1])
def test_an_expiry_that_no_calendar_has_is_shown_as_none(
    api: Api, at: str, instance: Instance, users: FakeUsers, at_ms: int
) -> None:
    users.add(instance.pk, "etl", expires_at_ms=at_ms)
    assert api.get(f"{at}/etl").json()["expires_at"] is None
    assert api.get(at).status_code == 200


@pytest.mark.parametrize("moment", ["9999-12-31T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T23:00:00Z"])
def test_an_expiry_that_has_no_local_time_everywhere_is_refused(api: Api, at: str, moment: str) -> None:
    problem = assert_problem(api.post(at, {"name": "etl", "expires_at": moment}), 400, "invalid_request")
    assert problem["errors"][0]["pointer"] == "/expires_at"
