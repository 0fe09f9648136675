"""Problem documents of all refusals: stable code, request id, pointers, and no internals."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import include, path
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ANYBODY, ApiView, endpoint
from tenants.api.middleware import REQUEST_ID_HEADER
from tenants.api.problems import validation_error
from tenants.limits import JSON_DEPTH_MAX, REQUEST_BODY_BYTES_MAX
from tenants.models import AuditEntry
from tests.testkit.api_cases import Api, assert_problem, make_member

SECRET_IN_A_CRASH = "postgres://user:hunter2@host"


class Crash(ApiView):
    """An endpoint of ours that raises."""

    @endpoint("crash", ANYBODY)
    def get(self, request: Request) -> Response:
        """Raises an unexpected error."""
        raise RuntimeError(SECRET_IN_A_CRASH)


def plain_crash(request: Any) -> Any:
    """A view below /api/ that is not an endpoint of ours."""
    raise RuntimeError(SECRET_IN_A_CRASH)


urlpatterns = [
    path("api/v1/crash", Crash.as_view()),
    path("api/v1/plain-crash", plain_crash),
    path("api/v1/", include("tenants.api.urls")),
]


@pytest.fixture()
def api(db: None) -> Api:
    return Api.of(make_member())


@pytest.mark.parametrize("path", ["/nothing-here", "/members/", "/tenants/x/y/z"])
def test_a_route_that_does_not_exist_is_a_problem(api: Api, path: str) -> None:
    assert_problem(api.get(path), 404, "not_found")
    assert_problem(Api().get(path), 404, "not_found")


def test_a_wrong_address_below_the_api_costs_no_page_and_no_query(
    api: Api, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.views.defaults.page_not_found", plain_crash)
    with django_assert_num_queries(0):
        assert_problem(api.get("/nothing-here"), 404, "not_found")
    assert api.get("/api/docs").status_code == 301


@pytest.mark.parametrize("debug", [True, False])
def test_debug_mode_shows_no_more_than_production(api: Api, debug: bool) -> None:
    with override_settings(DEBUG=debug):
        assert_problem(api.get("/nothing-here"), 404, "not_found")


def test_a_method_the_resource_does_not_have_is_405_with_allow(api: Api) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        answer = api.call(method, "/members")
        assert_problem(answer, 405, "method_not_allowed")
        assert set(answer["Allow"].split(", ")) >= {"GET", "POST"}


def test_a_media_type_we_do_not_read_is_415(api: Api) -> None:
    answer = api.call("POST", "/members", "email=a", **{"Content-Type": "application/x-www-form-urlencoded"})
    assert_problem(answer, 415, "unsupported_media_type")


def test_an_answer_that_is_not_json_cannot_be_asked_for(api: Api) -> None:
    assert_problem(api.get("/members", Accept="text/html"), 406, "not_acceptable")
    for accepted in ("application/json", "*/*", "application/problem+json", "text/html, application/*;q=0.5"):
        assert api.get("/members", Accept=accepted).status_code == 200


def test_a_body_over_the_limit_is_413_before_it_is_read(api: Api) -> None:
    body = json.dumps({"email": "a" * REQUEST_BODY_BYTES_MAX})
    assert_problem(api.call("POST", "/members", body), 413, "body_too_large")


def test_a_body_without_a_length_is_411_and_not_taken_for_an_empty_one(api: Api) -> None:
    answer = api.call("PATCH", "/members/x", b"", **{"Transfer-Encoding": "chunked"})
    assert_problem(answer, 411, "length_required")


def test_a_parameter_given_twice_is_400_because_it_could_mean_either(api: Api) -> None:
    before = AuditEntry.objects.count()
    body = {"name": "x", "scopes": ["members:read"]}
    problem = assert_problem(api.post("/tokens?dry_run=true&dry_run=false", body), 400, "invalid_request")
    assert problem["errors"][0]["parameter"] == "dry_run"
    assert AuditEntry.objects.count() == before


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"{'a': 1}", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 100_000, b'{"email": "\\u0000"}',
        b'{"email": "\\ud800"}', b'{"a": ' * 40 + b"1" + b"}" * 40, b'{"role": 1' + b"0" * 5000 + b"}",
    ],
)  # fmt: skip
def test_a_body_that_is_not_careful_json_is_400(api: Api, body: bytes) -> None:
    before = AuditEntry.objects.count()
    assert_problem(api.call("POST", "/members", body), 400, "malformed_json")
    assert AuditEntry.objects.count() == before
    assert JSON_DEPTH_MAX < 40


@pytest.mark.parametrize("path", ["/crash", "/plain-crash"])
@override_settings(ROOT_URLCONF=__name__)
def test_a_crash_is_500_without_its_cause_and_logged_with_the_request_id(
    db: None, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("tenants").propagate = True
    with caplog.at_level(logging.ERROR, logger="tenants.api"):
        answer = Api().get(path, **{REQUEST_ID_HEADER: "given-by-caller"})
    problem = assert_problem(answer, 500, "internal_error")
    assert SECRET_IN_A_CRASH not in answer.content.decode()
    assert problem["request_id"] == "given-by-caller"
    assert [record.request_id for record in caplog.records if record.exc_info] == ["given-by-caller"]


def test_a_host_we_do_not_serve_is_a_problem(api: Api) -> None:
    answer = api.client.get("/api/v1/members", headers={"Host": "evil.example"})
    assert_problem(answer, 400)


@pytest.mark.parametrize(
    "authorization", ["Bearer", "Bearer ", "Basic dTpw", "Bearer " + "x" * 500, "pst_abc", "Bearer pst_x"]
)
def test_a_header_that_is_no_token_of_ours_is_401(db: None, authorization: str) -> None:
    answer = Api().get("/members", Authorization=authorization)
    assert_problem(answer, 401, "unauthenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_every_wrong_place_is_named_by_a_json_pointer(api: Api) -> None:
    body = {"name": 7, "scopes": ["members:read", "no:such", 3], "expires_at": "tomorrow", "extra": True}
    problem = assert_problem(api.post("/tokens", body), 400, "invalid_request")
    assert {error["pointer"] for error in problem["errors"]} == {
        "/name",
        "/scopes/1",
        "/scopes/2",
        "/expires_at",
        "/extra",
    }


def test_a_pointer_escapes_what_json_pointer_escapes() -> None:
    error = validation_error({"a/b~c": [{"inner": ["wrong"]}]})
    assert [place.pointer for place in error.errors] == ["/a~1b~0c/0/inner"]


def test_a_request_id_is_made_echoed_and_never_taken_on_trust(api: Api) -> None:
    made = api.get("/members")[REQUEST_ID_HEADER]
    assert made.startswith("req-")
    assert api.get("/members", **{REQUEST_ID_HEADER: "my-trace-0001"})[REQUEST_ID_HEADER] == "my-trace-0001"
    for bad in ("short", "x" * 65, "has space in it", "semi;colon;"):
        assert api.get("/members", **{REQUEST_ID_HEADER: bad})[REQUEST_ID_HEADER].startswith("req-")


def test_the_console_page_of_a_wrong_address_stays_html(db: None) -> None:
    answer = Client().get("/no-such-page")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")
    assert answer[REQUEST_ID_HEADER].startswith("req-")


@pytest.mark.parametrize(
    "path", ["/members/%00", "/audit?target_id=%00", "/audit?page_token=%00", "/tokens/%F0%9F%92%A9"]
)
def test_odd_characters_in_an_address_are_refused_not_crashed_on(api: Api, path: str) -> None:
    assert api.get(path).status_code in (400, 404)


_ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(body=_ANY_JSON | st.fixed_dictionaries({"name": _ANY_JSON, "scopes": _ANY_JSON}))
@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_body_makes_the_api_crash_or_change_something(api: Api, body: Any) -> None:
    before = AuditEntry.objects.count()
    answer = api.post("/tokens", json.dumps(body))
    assert answer.status_code in (400, 403), answer.content
    assert_problem(answer, answer.status_code)
    assert AuditEntry.objects.count() == before
