"""The schema and the API agree: a machine reads the schema, calls everything with good and bad requests, and compares.

Few examples per operation keep this under a minute; they are the same on every run, so that a failure is one everybody
sees. Good requests go to resources that exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client, override_settings
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from billing.services import ensure_default_plans
from config.wsgi import application
from instances.services import create_instance
from tenants import services
from tenants.actors import member_actor
from tenants.choices import Role, Scope
from tenants.models import Member, User
from tests.testkit import depth
from tests.testkit.api_cases import make_member, make_token

EXAMPLES_PER_OPERATION = 3  # drawn at random, beside those at the edges of every declared value
# What a schema can say. A request that it allows may be refused for other reasons (a date that has passed, a token of
# another list), never for one of these.
SHAPE_CODES = frozenset(
    {"unknown_field", "required", "null", "blank", "empty", "not_a_list", "not_a_dict",
     "invalid_choice", "max_length", "min_length", "max_value", "min_value"}
)  # fmt: skip

schema = schemathesis.openapi.from_dict(SchemaGenerator().get_schema(request=None, public=True))
schema.app = application
FEEDBACK = FeedbackSources(constants_value_source=make_constants_value_source(schema))
# Of which each day has a quarter.
PARTS = 4
COVERS = (
    "tenants/api", "instances/api", "brokers/api", "billing/api", "notifications/api", "archives/api", "quotas/api",
    "tests/component/api",
)  # fmt: skip
OPERATIONS = {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}


@pytest.fixture()
def owner(db: None) -> Iterator[Member]:
    """A tenant's owner. Requests of the test client keep the test's database connection and its transaction."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    with override_settings(API_RATE_LIMITS=False):
        yield make_member(Role.OWNER)
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.fixture()
def places(owner: Member) -> dict[str, str]:
    """Returns ids of existing objects by the name of their path parameter."""
    acting = member_actor(owner)
    ensure_default_plans()
    instance, operation = create_instance(acting=acting, name="orders")
    return {
        "instance_id": instance.pk,
        "operation_id": operation.pk,
        "tenant_id": owner.tenant_id,
        "member_id": make_member(Role.DEVELOPER, owner.tenant).pk,
        "token_id": services.create_token(acting=acting, name="t", scopes=["members:read"])[0].pk,
        "invitation_id": services.invite_member(acting=acting, email="guest@example.com", role="viewer")[0].pk,
    }


@pytest.fixture()
def secret(owner: Member) -> str:
    """A token with all rights of an owner."""
    return make_token(owner)


@settings(
    max_examples=EXAMPLES_PER_OPERATION,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def keeps_to_the_schema(case: Any, secret: str, places: dict[str, str]) -> None:
    if case.meta.generation.mode is GenerationMode.POSITIVE:
        for name in case.path_parameters.keys() & places.keys():
            case.path_parameters[name] = places[name]
    answer = case.call(headers={"Authorization": f"Bearer {secret}"})
    # What is longer than any body may be is refused before anybody reads what is in it.
    unasked = [negative_data_rejection] if answer.status_code == 413 else []
    # The token of this call replaces whatever a case has; `test_routes` asks each route without one.
    case.validate_response(answer, excluded_checks=[positive_data_acceptance, ignored_auth, *unasked])
    if case.meta.generation.mode is GenerationMode.POSITIVE and answer.status_code == 400:
        problem = answer.json()
        said = {problem["code"]} | {error["code"] for error in problem.get("errors", ())}
        assert not said & SHAPE_CODES, f"the schema allows what the API refuses: {problem}"


@pytest.mark.parametrize("label", depth.day_share(sorted(OPERATIONS), PARTS, COVERS))
def test_every_operation_keeps_to_the_schema(label: str, secret: str, places: dict[str, str]) -> None:
    """Cases are generated here: `schema.parametrize` would generate all of them in each process that collects tests."""
    operation = OPERATIONS[label]
    load_all_checks()
    build_operation_test(
        config=schema.config,
        operation=operation,
        test_func=keeps_to_the_schema,
        given_kwargs={},
        feedback=FEEDBACK,
    )(secret=secret, places=places)


def test_the_schema_is_served_and_its_docs_come_from_here(client: Client) -> None:
    served = client.get("/api/schema/?format=json", headers={"Accept": "*/*"})
    assert served.status_code == 200
    assert json.loads(served.content)["openapi"].startswith("3.1")
    page = client.get("/api/docs/").content.decode()
    assert "/static/drf_spectacular_sidecar/" in page
    assert "cdn." not in page
    assert 'src="http' not in page


def test_every_operation_says_who_may_call_it_and_what_can_go_wrong() -> None:
    raw = schema.raw_schema
    names = []
    for path, methods in raw["paths"].items():
        for method, operation in methods.items():
            names.append(operation["operationId"])
            answers = operation["responses"]
            assert {"400", "406", "429", "500"} <= set(answers), (path, method)
            # The credential of `join_host` is the token in its body.
            is_signed = operation["security"] or operation["operationId"] == "join_host"
            assert is_signed or "401" not in answers, (path, method)
            assert ("404" in answers) >= ("{" in path), (path, method)
            if method == "post":
                assert "Idempotency-Key" in {parameter["name"] for parameter in operation["parameters"]}
    assert len(names) == len(set(names))
    problem = raw["components"]["responses"]["Problem404"]["content"]
    assert set(problem) == {"application/problem+json"}


def test_the_document_is_drawn_up_once_however_often_it_is_asked_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = client.get("/api/schema/?format=json")
    monkeypatch.setattr(SpectacularAPIView, "get", None)
    again = client.get("/api/schema/?format=json")
    assert again.status_code == 200
    assert json.loads(again.content)["openapi"] == "3.1.0"
    assert again.content == first.content


def served_paths(client: Client, **headers: str) -> set[str]:
    answer = client.get("/api/schema/?format=json", headers=headers)
    assert answer.status_code == 200
    assert {"Authorization", "Cookie"} <= set(answer["Vary"].split(", "))
    document = json.loads(answer.content)
    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.content.decode()))
    assert referred <= document["components"]["schemas"].keys()
    return set(document["paths"])


@pytest.mark.django_db
def test_operators_routes_are_in_the_schema_of_operators_alone(client: Client) -> None:
    operator = make_member(Role.OWNER)
    User.objects.filter(pk=operator.user_id).update(is_staff=True)
    token = make_token(Member.objects.get(pk=operator.pk), [Scope.OPERATOR, Scope.INSTANCES_READ])
    everything = set(schema.raw_schema["paths"])
    whole = served_paths(client, Authorization=f"Bearer {token}")
    public = served_paths(client)
    assert whole == everything
    assert {path for path in everything if path.startswith("/api/v1/operator/")}
    assert not [path for path in public if "operator" in path or path in ("/metrics", "/readyz")]
    assert everything - public == {path for path in everything if path.startswith("/api/v1/operator/")}
    owner = make_token(make_member(Role.OWNER))
    for headers in ({"Authorization": f"Bearer {owner}"}, {"Authorization": "Bearer pst_guess"}):
        assert served_paths(client, **headers) == public
    narrower = make_token(Member.objects.get(pk=operator.pk), [Scope.INSTANCES_READ])
    assert served_paths(client, Authorization=f"Bearer {narrower}") == public
    client.force_login(User.objects.get(pk=operator.user_id))
    with override_settings(OPERATORS_NEED_SECOND_FACTOR=True):
        assert served_paths(client) == public
    with override_settings(OPERATORS_NEED_SECOND_FACTOR=False):
        assert served_paths(client) == everything
