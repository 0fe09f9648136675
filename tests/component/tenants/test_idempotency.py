"""Idempotency-Key: the same request does its work once, whatever the network does."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection, transaction
from django.utils import timezone

from tenants.api import idempotency
from tenants.limits import IDEMPOTENCY_HOURS
from tenants.models import ApiToken, AuditEntry, IdempotencyRecord, Invitation
from tenants.tasks import forget_idempotency_records
from tests.testkit.api_cases import Api, assert_problem, make_member, make_token

BODY = {"name": "ci", "scopes": ["members:read"]}
INVITATION = {"email": "colleague@example.com", "role": "viewer"}


@pytest.fixture()
def api(db: None) -> Api:
    return Api.of(make_member())


def test_the_same_key_and_body_replays_the_answer_and_does_nothing(api: Api) -> None:
    first = api.post("/members", INVITATION, Idempotency_Key="k-1")
    audits = AuditEntry.objects.count()
    second = api.post("/members", INVITATION, Idempotency_Key="k-1")
    assert (first.status_code, second.status_code) == (201, 201)
    assert "Idempotency-Replayed" not in first
    assert second["Idempotency-Replayed"] == "true"
    assert second["Location"] == first["Location"]
    assert second["ETag"] == first["ETag"]
    assert {**second.json(), "accept_url": ""} == {**first.json(), "accept_url": ""}
    assert Invitation.objects.count() == 1
    assert AuditEntry.objects.count() == audits


def test_the_same_key_with_another_body_or_path_is_422(api: Api) -> None:
    api.post("/tokens", BODY, Idempotency_Key="k-1")
    assert_problem(api.post("/tokens", {**BODY, "name": "other"}, Idempotency_Key="k-1"), 422, "idempotency_key_reused")
    assert_problem(api.post("/members", INVITATION, Idempotency_Key="k-1"), 422, "idempotency_key_reused")


def test_a_secret_is_not_kept_for_the_replay(api: Api) -> None:
    first = api.post("/tokens", BODY, Idempotency_Key="k-1").json()
    second = api.post("/tokens", BODY, Idempotency_Key="k-1").json()
    assert first["secret"].startswith("pst_")
    assert second == {**first, "secret": None}
    assert first["secret"] not in json.dumps(list(IdempotencyRecord.objects.values("body", "headers")))


def test_keys_of_different_tokens_and_tenants_do_not_meet(api: Api) -> None:
    api.post("/tokens", BODY, Idempotency_Key="k-1")
    answer = Api.of(make_member()).post("/tokens", {**BODY, "name": "other"}, Idempotency_Key="k-1")
    assert answer.status_code == 201


def test_a_refused_request_leaves_its_key_free(api: Api) -> None:
    assert_problem(api.post("/tokens", {**BODY, "scopes": []}, Idempotency_Key="k-1"), 400)
    assert_problem(api.post("/tokens", {**BODY, "scopes": ["operator"]}, Idempotency_Key="k-1"), 403)
    assert api.post("/tokens", BODY, Idempotency_Key="k-1").status_code == 201


def test_a_dry_run_leaves_its_key_free(api: Api) -> None:
    assert api.post("/tokens?dry_run=true", BODY, Idempotency_Key="k-1").status_code == 201
    answer = api.post("/tokens", BODY, Idempotency_Key="k-1")
    assert "Idempotency-Replayed" not in answer


@pytest.mark.parametrize("key", ["", "has space", "ü", "x" * 129])
def test_a_key_that_is_no_key_is_400_and_names_the_header(api: Api, key: str) -> None:
    problem = assert_problem(api.post("/tokens", BODY, Idempotency_Key=key), 400)
    assert problem["errors"][0]["header"] == "Idempotency-Key"


def test_after_24_hours_a_key_is_forgotten(api: Api) -> None:
    first = api.post("/tokens", BODY, Idempotency_Key="k-1").json()
    later = timezone.now() + timedelta(hours=IDEMPOTENCY_HOURS, minutes=1)
    with time_machine.travel(later, tick=False):
        second = api.post("/tokens", BODY, Idempotency_Key="k-1").json()
        assert second["id"] != first["id"]
    with time_machine.travel(later + timedelta(days=2), tick=False):
        assert forget_idempotency_records() == 1
    assert IdempotencyRecord.objects.count() == 0


def test_a_record_exists_exactly_when_its_work_is_committed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise RuntimeError("power cut between the work and the record")

    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "_store", crash)
        assert_problem(api.post("/tokens", BODY, Idempotency_Key="k-1"), 500)
    assert ApiToken.objects.filter(name="ci").count() == 0
    assert api.post("/tokens", BODY, Idempotency_Key="k-1").status_code == 201


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_requests_works_and_the_other_is_409(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = make_token(make_member())
    inside, go_on = threading.Event(), threading.Event()
    keep = idempotency._store

    def keep_when_declared(*given: Any) -> None:
        inside.set()
        assert go_on.wait(10)
        keep(*given)

    monkeypatch.setattr(idempotency, "_store", keep_when_declared)
    answers: list[Any] = []

    def send() -> None:
        try:
            answers.append(Api(secret).post("/tokens", BODY, Idempotency_Key="k-1"))
        finally:
            connection.close()

    thread = threading.Thread(target=send)
    thread.start()
    assert inside.wait(10)
    refused = Api(secret).post("/members", INVITATION, Idempotency_Key="k-1")
    assert_problem(refused, 409, "idempotency_key_in_use")
    assert refused["Retry-After"] == "1"
    go_on.set()
    thread.join(10)
    assert [answer.status_code for answer in answers] == [201]
    assert ApiToken.objects.filter(name="ci").count() == 1
    with transaction.atomic():
        assert Api(secret).post("/tokens", BODY, Idempotency_Key="k-1")["Idempotency-Replayed"] == "true"
