"""Reusable tests of the guarantees of every endpoint, with their builders.

    @pytest.mark.django_db
    class TestTopics(EndpointCases):
        cases = (
            Case("GET", "/instances/{instance}/topics", Scope.TOPICS_READ),
            Case("POST", "/instances/{instance}/topics", Scope.TOPICS_WRITE, body={"name": "orders"}, status=201),
        )

        def places(self, owner: Member) -> dict[str, str]:
            return {"instance": make_instance(owner.tenant).pk}

For each case: no token is 401, a token without the scope is 403, a viewer may not write, another tenant gets 404, an
unknown field changes nothing, a dry run changes nothing, and the request itself succeeds and leaves an audit row.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants import access, services
from tenants.actors import member_actor
from tenants.choices import Role
from tenants.models import AuditEntry, Member, Tenant, User

PASSWORD = "a long enough passphrase"
ROOT = "/api/v1"
QUERIES_MAX = 12
_numbers = itertools.count(1)


# --- builders ---------------------------------------------------------------------------------------------------------


def make_user(email: str | None = None, **fields: Any) -> User:
    """Creates a person with the password `PASSWORD`."""
    return User.objects.create_user(email or f"person-{next(_numbers)}@example.com", PASSWORD, **fields)


def make_tenant(name: str = "Acme") -> Tenant:
    """Creates a tenant and its owner (`owner_of`)."""
    return services.create_own_tenant(user=make_user(), name=name).tenant


def owner_of(tenant: Tenant) -> Member:
    """Returns the first owner of a tenant."""
    result = Member.objects.select_related("user", "tenant").filter(tenant=tenant, role=Role.OWNER).first()
    assert result is not None
    return result


def make_member(role: Role | str = Role.OWNER, tenant: Tenant | None = None) -> Member:
    """Creates a member with a role, by default in a new tenant."""
    if tenant is None:
        tenant = make_tenant()
        if role == Role.OWNER:
            return owner_of(tenant)
    return Member.objects.create(tenant=tenant, user=make_user(), role=role)


def make_token(member: Member, scopes: Iterable[str] | None = None) -> str:
    """Creates a token of the member and returns its secret; it has all the member's scopes by default."""
    acting = member_actor(member)
    scope_values = sorted(access.TOKEN_SCOPES & (access.scopes_of(acting) if scopes is None else frozenset(scopes)))
    return services.create_token(acting=acting, name="test", scopes=scope_values)[1]


class Api:
    """A caller of the API: `Api(token).post("/members", {...})`. Paths are below `/api/v1`."""

    def __init__(self, token: str | None = None, *, user: User | None = None) -> None:
        self.client = Client()
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        if user is not None:
            self.client.force_login(user)

    @classmethod
    def of(cls, member: Member, scopes: Iterable[str] | None = None) -> Api:
        """Returns a caller with a new token of the member."""
        return cls(make_token(member, scopes))

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Sends a request; `If_Match="…"` becomes the header If-Match. A `str` or `bytes` body is sent verbatim."""
        extra_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        request_headers = {**self.headers, **extra_headers}
        if body is not None and not isinstance(body, str | bytes):
            body = json.dumps(body)
        url = path if path.startswith("/api/") else ROOT + path
        content_type = request_headers.pop("Content-Type", "application/json")
        return self.client.generic(
            method, url, body or "", content_type=content_type, headers=request_headers, RAW_URI=url
        )

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", path, body, **headers)

    def put(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("PUT", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        return self.call("DELETE", path, **headers)


def assert_problem(response: Any, status: int, code: str | None = None) -> dict[str, Any]:
    """Asserts that the answer is a complete problem document; returns it."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = json.loads(response.content)
    assert body["status"] == status
    assert body["title"]
    assert body["code"]
    assert body["request_id"] == response["X-Request-Id"]
    assert "Traceback" not in response.content.decode()
    if code is not None:
        assert body["code"] == code, body
    return body


# --- promises ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One endpoint. `path` may have `{names}` from the class's `places`, and the query that it needs. `audited` is
    False for a change without an audit row, `dry_run` False for an endpoint without one.
    """

    method: str
    path: str
    scope: str
    _: KW_ONLY
    body: Mapping[str, Any] | None = None
    status: int = 200
    queries_max: int = QUERIES_MAX
    audited: bool = True
    dry_run: bool = True

    @property
    def is_write(self) -> bool:
        return self.method not in ("GET", "HEAD")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class EndpointCases:
    """Base class of the tests of an endpoint: mark it `django_db`, and give it `cases` and `places`."""

    cases: tuple[Case, ...] = ()
    denied_role = Role.VIEWER

    def places(self, owner: Member) -> dict[str, str]:
        """Creates the objects in the paths, in the owner's tenant."""
        return {}

    def snapshot(self) -> Any:
        """Returns a value that must not change when a request is refused; every mutation leaves an audit row."""
        return AuditEntry.objects.count()

    @pytest.fixture()
    def owner(self) -> Member:
        return make_member(Role.OWNER)

    @pytest.fixture()
    def at(self, owner: Member, case: Case) -> str:
        return case.path.format(**self.places(owner))

    def test_without_a_token_it_is_401_and_nothing_changes(self, case: Case, at: str) -> None:
        before = self.snapshot()
        answer = Api().call(case.method, at, case.body)
        assert_problem(answer, 401, "unauthenticated")
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert self.snapshot() == before

    def test_a_token_without_the_scope_is_403(self, case: Case, at: str, owner: Member) -> None:
        caller = Api.of(owner, access.ROLE_SCOPES[Role.OWNER] - {case.scope})
        before = self.snapshot()
        assert_problem(caller.call(case.method, at, case.body), 403, "permission_denied")
        assert self.snapshot() == before

    def test_a_viewer_may_not_write(self, case: Case, at: str, owner: Member) -> None:
        if not case.is_write:
            return
        caller = Api.of(make_member(self.denied_role, owner.tenant))
        before = self.snapshot()
        assert_problem(caller.call(case.method, at, case.body), 403, "permission_denied")
        assert self.snapshot() == before

    def test_another_tenant_cannot_tell_it_from_an_unknown_one(self, case: Case, at: str) -> None:
        if "{" not in case.path:
            return
        stranger = Api.of(make_member(Role.OWNER))
        before = self.snapshot()
        foreign = assert_problem(stranger.call(case.method, at, case.body), 404, "not_found")
        unknown_path = case.path.format_map(_Unknown())
        unknown = assert_problem(stranger.call(case.method, unknown_path, case.body), 404, "not_found")
        assert {**foreign, "request_id": ""} == {**unknown, "request_id": ""}
        assert self.snapshot() == before

    def test_an_unknown_field_or_parameter_changes_nothing(self, case: Case, at: str, owner: Member) -> None:
        caller = Api.of(owner)
        before = self.snapshot()
        if case.body is not None:
            problem = assert_problem(caller.call(case.method, at, {**case.body, "surprise/~": 1}), 400)
            assert {"pointer": "/surprise~1~0", "code": "unknown_field", "detail": "There is no such field."} in (
                problem["errors"]
            )
            for not_an_object in ([], "text", 7, None):
                assert_problem(caller.call(case.method, at, json.dumps(not_an_object)), 400)
        problem = assert_problem(caller.call(case.method, _with(at, "surprise=1"), case.body), 400)
        assert problem["errors"][0]["parameter"] == "surprise"
        assert self.snapshot() == before

    def test_a_dry_run_answers_as_if_and_changes_nothing(self, case: Case, at: str, owner: Member) -> None:
        if not case.is_write or not case.dry_run:
            return
        caller = Api.of(owner)
        before = self.snapshot()
        answer = caller.call(case.method, _with(at, "dry_run=true"), case.body)
        assert answer.status_code == case.status, answer.content
        assert answer["Dry-Run"] == "true"
        assert not {"Location", "ETag"} & set(answer.headers), "a dry run names what does not exist"
        assert self.snapshot() == before

    def test_it_works_and_a_change_leaves_an_audit_row(self, case: Case, at: str, owner: Member) -> None:
        caller = Api.of(owner)
        entries = AuditEntry.objects.filter(tenant=owner.tenant)
        before = entries.count()
        with CaptureQueriesContext(connection) as queries:
            answer = caller.call(case.method, at, case.body)
        assert answer.status_code == case.status, answer.content
        assert len(queries) <= (case.queries_max if not case.is_write else case.queries_max + 10), _listed(queries)
        if case.is_write and case.audited:
            assert entries.count() > before
            newest = entries.first()
            assert newest is not None
            assert newest.request_id == answer["X-Request-Id"]
            assert newest.actor_kind == "token"


def _with(at: str, parameter: str) -> str:
    return f"{at}{'&' if '?' in at else '?'}{parameter}"


class _Unknown(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "zzz-00000000"


def _listed(queries: CaptureQueriesContext) -> str:
    return "\n".join(query["sql"][:160] for query in queries.captured_queries)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Generates one test per case. Import this name into a test module that has `EndpointCases`."""
    if "case" in metafunc.fixturenames and metafunc.cls is not None and issubclass(metafunc.cls, EndpointCases):
        metafunc.parametrize("case", metafunc.cls.cases, ids=str)
