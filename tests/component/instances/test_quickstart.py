"""The quickstart over REST: topic, user, password, sample data, and code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache

from instances import interfaces, services
from instances.messages.interfaces import message_admin_client
from instances.models import Instance, Route, default_settings
from instances.naming import DEMO_CLIENT_ID
from instances.quickstart import runs
from instances.quickstart.limits import (
    PUSH_EVERY_S,
    PUSH_LIMIT_BYTES_PER_S,
    PUSH_TURNS,
    SAMPLE_MESSAGES_PER_TURN,
    SAMPLE_RUNS_MAX,
    SAMPLE_RUNS_PER_TENANT_MAX,
    SAMPLE_TURNS,
)
from instances.quickstart.pushing import end_push, push_turn
from instances.quickstart.sending import send_turn
from tenants import access
from tenants.actors import member_actor, system_actor
from tenants.choices import Role, Scope
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_data_plane import FakeDataPlane, FakeQuotas
from tests.testkit.fake_messages import FakeMessages
from tests.testkit.fake_users import FakeAcls, FakeUsers
from tests.testkit.fleet import make_running, plugged

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def queued() -> Iterator[list[tuple[str, str, str]]]:
    """Runs of sample data that were enqueued."""
    cache.clear()
    result: list[tuple[str, str, str]] = []
    with plugged(interfaces.stream_samples, lambda *run: result.append(run)):
        yield result


@pytest.fixture()
def instance(owner: Member) -> Instance:
    made = make_running(owner.tenant, settings=default_settings())
    Route.objects.create(
        instance=made, name="main", security="sasl_plaintext", endpoints={"1": "kafka.example:19000"}
    )  # fmt: skip
    return made


def start(api: Api, instance: Instance, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = api.post(f"/instances/{instance.pk}/quickstart", body)
    assert answer.status_code == status, answer.content
    return dict(json.loads(answer.content))


def test_everything_for_a_first_message_is_made(
    api: Api, instance: Instance, users: FakeUsers, acls: FakeAcls, queued: list[Any],
    django_capture_on_commit_callbacks: Any,
) -> None:  # fmt: skip
    with django_capture_on_commit_callbacks(execute=True):
        made = start(api, instance)
    assert (made["topic"], made["is_topic_new"], made["user"]) == ("orders", True, "quickstart")
    assert users.users_by_key[instance.pk, "quickstart"].secrets
    assert {rule.principal for rule in acls.rules_by_instance[instance.pk]} == {"User:quickstart"}
    codes = {item["language"]: item["code"] for item in made["code"]}
    assert codes.keys() == {"python", "java", "go", "node", "csharp", "rust", "kcat", "shell"}
    assert all(made["password"] in code and "orders" in code for code in codes.values())
    assert made["samples_until"] is not None
    assert [run[:2] for run in queued] == [(instance.pk, "orders")]
    assert AuditEntry.objects.filter(action="messages.samples_started").count() == 1


def test_a_repeated_answer_has_no_secret(api: Api, instance: Instance) -> None:
    path = f"/instances/{instance.pk}/quickstart"
    first, second = (api.post(path, {}, Idempotency_Key="once") for _ in range(2))
    made, again = json.loads(first.content), json.loads(second.content)
    assert made["password"]
    assert (again["password"], again["code"]) == (None, None)
    assert made["password"] not in second.content.decode()


def test_a_second_call_uses_the_topic_and_makes_another_user(api: Api, instance: Instance, users: FakeUsers) -> None:
    start(api, instance)
    made = start(api, instance)
    assert (made["is_topic_new"], made["user"], made["samples_until"]) == (False, "quickstart-2", None)
    assert_problem(api.post(f"/instances/{instance.pk}/quickstart", {"user": "quickstart"}), 409, "already_exists")


def test_the_name_of_a_user_that_was_deleted_lately_is_not_used(api: Api, instance: Instance, users: FakeUsers) -> None:
    start(api, instance)
    assert api.delete(f"/instances/{instance.pk}/users/quickstart").status_code == 204
    assert start(api, instance)["user"] == "quickstart-2"
    answer = api.post(f"/instances/{instance.pk}/quickstart", {"user": "quickstart"})
    assert_problem(answer, 409, "recently_deleted")


def test_an_instance_without_sign_in_gets_no_user(api: Api, owner: Member, users: FakeUsers) -> None:
    made = start(api, make_running(owner.tenant))
    assert (made["user"], made["password"], users.users_by_key) == (None, None, {})


@pytest.mark.parametrize("missing", [Scope.USERS_WRITE, Scope.ACLS_WRITE, Scope.MESSAGES_WRITE])
def test_nothing_is_made_where_one_permission_is_missing(
    owner: Member, instance: Instance, missing: Scope, data_plane: FakeDataPlane, users: FakeUsers
) -> None:
    api = Api.of(owner, access.ROLE_SCOPES[Role.OWNER] - {missing})
    assert_problem(api.post(f"/instances/{instance.pk}/quickstart", {}), 403, "permission_denied")
    assert not AuditEntry.objects.filter(action__in=("topic.created", "user.created")).exists()
    assert users.users_by_key == {}


@pytest.mark.parametrize("body", [{"topic": "a/b"}, {"topic": ""}, {"topic": "x" * 300}, {"user": ""}, {"user": ".."}])
def test_names_that_cannot_be_are_refused(api: Api, instance: Instance, body: dict[str, str]) -> None:
    answer = api.post(f"/instances/{instance.pk}/quickstart", body)
    assert answer.status_code == 400, answer.content


# --- sample data ------------------------------------------------------------------------------------------------------


def run_of(instance: Instance) -> str:
    run = runs.begin(instance.tenant_id, instance.pk)
    assert run
    return run


def test_sample_data_ends_after_its_turns(instance: Instance) -> None:
    messages = FakeMessages(has_every_topic=True)
    run = run_of(instance)
    turn = 0
    with plugged(message_admin_client, messages):
        while send_turn(instance.pk, "orders", run, turn):
            turn += 1
        assert not send_turn(instance.pk, "orders", run, 1)
    sent = messages.records[instance.pk, "orders"]
    assert turn + 1 == SAMPLE_TURNS
    assert len(sent) == SAMPLE_TURNS * SAMPLE_MESSAGES_PER_TURN
    assert json.loads(sent[-1].value or b"")["order"] == f"o-{len(sent)}"
    assert run_of(instance)


def test_sample_data_ends_with_its_instance(instance: Instance) -> None:
    messages = FakeMessages(has_every_topic=True)
    run = run_of(instance)
    services.suspend_instance(acting=system_actor("tests"), instance=instance)
    Instance.objects.filter(pk=instance.pk).update(phase="deleting")
    with plugged(message_admin_client, messages):
        assert not send_turn(instance.pk, "orders", run, 0)
    assert messages.records == {}
    assert run_of(instance)


def test_sample_data_ends_with_its_topic(instance: Instance) -> None:
    with plugged(message_admin_client, FakeMessages()):
        assert not send_turn(instance.pk, "gone", run_of(instance), 0)


def test_a_tenant_has_few_runs_at_once_and_an_instance_one(owner: Member, instance: Instance) -> None:
    others = [make_running(owner.tenant, name=f"more-{number}") for number in range(SAMPLE_RUNS_PER_TENANT_MAX)]
    assert run_of(instance)
    assert not runs.begin(instance.tenant_id, instance.pk)
    given = [bool(runs.begin(other.tenant_id, other.pk)) for other in others]
    assert given == [True] * (SAMPLE_RUNS_PER_TENANT_MAX - 1) + [False]
    stranger = make_running(make_member().tenant)
    assert runs.begin(stranger.tenant_id, stranger.pk)


def test_all_tenants_together_have_a_limit_and_a_refusal_takes_no_place() -> None:
    begun = [runs.begin(f"ten-{number}", f"ins-{number}") for number in range(SAMPLE_RUNS_MAX + 1)]
    assert [bool(run) for run in begun] == [True] * SAMPLE_RUNS_MAX + [False]
    runs.end(begun[0])
    assert runs.begin(f"ten-{SAMPLE_RUNS_MAX}", f"ins-{SAMPLE_RUNS_MAX}")


# --- push the limit ---------------------------------------------------------------------------------------------------


@pytest.fixture()
def pushes() -> Iterator[list[tuple[str, str, str]]]:
    result: list[tuple[str, str, str]] = []
    with plugged(interfaces.push_limit, lambda *run: result.append(run)):
        yield result


def test_a_limit_is_pushed_and_taken_back(
    api: Api, instance: Instance, client_quotas: FakeQuotas, pushes: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    start(api, instance)
    with django_capture_on_commit_callbacks(execute=True):
        answer = api.post(f"/instances/{instance.pk}/push", {})
    assert answer.status_code == 200, answer.content
    assert json.loads(answer.content)["limit_bytes_per_s"] == PUSH_LIMIT_BYTES_PER_S
    ((instance_id, topic, run),) = pushes
    assert [quota.client_id.name for quota in client_quotas.describe(instance.pk)] == [DEMO_CLIENT_ID]
    assert_problem(api.post(f"/instances/{instance.pk}/push", {}), 409, "already_running")
    messages, turn = FakeMessages(has_every_topic=True), 0
    with plugged(message_admin_client, messages):
        while push_turn(instance_id, topic, run, turn):
            turn += 1
    sent = sum(len(record.value or b"") for record in messages.records[instance.pk, "orders"])
    assert sent > PUSH_LIMIT_BYTES_PER_S * PUSH_EVERY_S * PUSH_TURNS
    assert list(client_quotas.describe(instance.pk)) == []


def test_the_quota_goes_where_turns_are_lost_and_a_later_run_keeps_its_own(
    api: Api, instance: Instance, client_quotas: FakeQuotas, pushes: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    start(api, instance)
    for expected in (1, 2):
        with django_capture_on_commit_callbacks(execute=True):
            assert api.post(f"/instances/{instance.pk}/push", {}).status_code == 200
        assert len(pushes) == expected
        end_push(instance.pk, "another run")
        assert len(list(client_quotas.describe(instance.pk))) == 1
        end_push(instance.pk, pushes[-1][2])
        assert list(client_quotas.describe(instance.pk)) == []


def test_a_limit_is_pushed_for_a_topic_that_is_there_alone(api: Api, instance: Instance, pushes: list[Any]) -> None:
    assert_problem(api.post(f"/instances/{instance.pk}/push", {"topic": "nothing"}), 404)
    start(api, instance)
    assert api.post(f"/instances/{instance.pk}/push?dry_run=true", {}).status_code == 200
    assert pushes == []


# --- who am I ---------------------------------------------------------------------------------------------------------


def test_a_token_reads_who_it_is_and_what_it_may_do(owner: Member) -> None:
    api = Api.of(owner, {Scope.TOPICS_READ})
    me = json.loads(api.get("/me").content)
    assert (me["kind"], me["user"]["email"], me["role"]) == ("token", owner.user.email, "owner")
    assert (me["tenant"]["id"], me["scopes"]) == (owner.tenant_id, ["topics:read"])
    assert me["token_id"].startswith("tok-")
    assert_problem(Api().get("/me"), 401)


def test_the_service_makes_nothing_in_a_dry_run(owner: Member, instance: Instance, queued: list[Any]) -> None:
    made = services.quickstart(acting=member_actor(owner), instance=instance, dry_run=True)
    assert made.samples_until is None
    assert queued == []
