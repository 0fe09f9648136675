"""Rate limits: counted in Redis, reported in headers, and off while Redis is unreachable."""

from __future__ import annotations

import pytest
from django.test import override_settings

from config.embedded.process import free_port
from tenants import limits
from tenants.api import rates
from tests.testkit.api_cases import Api, assert_problem, make_member

pytestmark = pytest.mark.django_db


@pytest.fixture()
def api() -> Api:
    return Api.of(make_member())


def test_reads_and_writes_are_counted_separately_and_shown_in_headers(
    api: Api, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_READS_PER_MINUTE_MAX", 3)
    monkeypatch.setattr(limits, "API_WRITES_PER_MINUTE_MAX", 1)
    with override_settings(REDIS_URL=redis_url):
        seen = [api.get("/members") for _ in range(3)]
        assert [answer["RateLimit-Remaining"] for answer in seen] == ["2", "1", "0"]
        assert {answer["RateLimit-Limit"] for answer in seen} == {"3"}
        assert 0 < int(seen[-1]["RateLimit-Reset"]) <= rates.WINDOW_S
        refused = api.get("/members")
        assert_problem(refused, 429, "rate_limited")
        assert refused["Retry-After"] == refused["RateLimit-Reset"]
        assert api.post("/tokens", {"name": "a", "scopes": ["members:read"]}).status_code == 201
        assert_problem(api.post("/tokens", {"name": "b", "scopes": ["members:read"]}), 429)
        assert Api.of(make_member()).get("/members").status_code == 200


def test_wrong_tokens_are_charged_to_their_address(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "API_ANONYMOUS_PER_MINUTE_MAX", 2)
    with override_settings(REDIS_URL=redis_url):
        statuses = [Api(f"pst_guess_{n}").get("/members").status_code for n in range(4)]
        assert statuses == [401, 401, 429, 429]


def from_address(api: Api, address: str) -> Api:
    api.client.defaults["REMOTE_ADDR"] = address
    return api


def test_wrong_tokens_from_one_ipv6_network_are_charged_together(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_ANONYMOUS_PER_MINUTE_MAX", 2)
    with override_settings(REDIS_URL=redis_url):
        guesses = [from_address(Api(f"pst_guess_{n}"), f"2001:db8:1:1::{n}") for n in range(4)]
        assert [api.get("/members").status_code for api in guesses] == [401, 401, 429, 429]
        assert from_address(Api("pst_guess"), "2001:db8:1:2::1").get("/members").status_code == 401


def test_requests_for_the_schema_are_charged_to_the_caller(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise tokens are guessed there, because the schema is shown to operators in full."""
    monkeypatch.setattr(limits, "API_ANONYMOUS_PER_MINUTE_MAX", 2)
    monkeypatch.setattr(limits, "API_READS_PER_MINUTE_MAX", 3)
    path = "/api/schema/?format=json"
    with override_settings(REDIS_URL=redis_url):
        guesses = [from_address(Api(f"pst_guess_{n}"), "192.0.2.77") for n in range(3)]
        answers = [api.get(path) for api in guesses]
        assert [answer.status_code for answer in answers] == [401, 401, 429]
        assert_problem(answers[-1], 429, "rate_limited")
        member = from_address(Api.of(make_member()), "192.0.2.77")
        assert [member.get(path).status_code for _ in range(4)] == [200, 200, 200, 429]


def test_a_request_refused_before_authentication_is_charged_to_the_address(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session without its CSRF token, or another tenant's: refusing them costs a query each time."""
    monkeypatch.setattr(limits, "API_ANONYMOUS_PER_MINUTE_MAX", 2)
    member = make_member()
    calls = [
        lambda api: api.get("/members", Penstock_Tenant="ten-00000000"),
        lambda api: api.post("/tokens", {}),
    ]
    guarded = Api(user=member.user)
    guarded.client.handler.enforce_csrf_checks = True
    with override_settings(REDIS_URL=redis_url):
        for n, (api, call) in enumerate(((Api.of(member), calls[0]), (guarded, calls[0]), (guarded, calls[1]))):
            api.client.defaults["REMOTE_ADDR"] = f"192.0.2.{n}"  # a bucket of its own
            assert [call(api).status_code for _ in range(4)] == [403, 403, 429, 429]


def test_without_redis_nobody_is_refused_and_redis_is_left_alone_for_a_while(api: Api) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with override_settings(REDIS_URL=url):
        answers = [api.get("/members") for _ in range(5)]
        assert {answer.status_code for answer in answers} == {200}
        assert all("RateLimit-Limit" not in answer for answer in answers)
        assert rates.counter(url)._retry_at_s > 0


def test_limits_can_be_switched_off(api: Api, redis_url: str) -> None:
    with override_settings(REDIS_URL=redis_url, API_RATE_LIMITS=False):
        assert "RateLimit-Limit" not in api.get("/members")


def test_tokens_of_a_tenant_share_a_rate_and_another_tenant_has_its_own(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_TENANT_READS_PER_MINUTE_MAX", 10)
    monkeypatch.setattr(limits, "API_TENANT_WRITES_PER_MINUTE_MAX", 3)
    member = make_member()
    tokens = [Api.of(member) for _ in range(4)]
    with override_settings(REDIS_URL=redis_url):
        answers = [tokens[number % 4].get("/members") for number in range(12)]
        assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 2
        assert [int(answer["RateLimit-Remaining"]) for answer in answers[:10]] == list(range(9, -1, -1))
        assert {answer["RateLimit-Limit"] for answer in answers} == {"10"}
        assert "All callers of the tenant" in assert_problem(answers[-1], 429, "rate_limited")["detail"]
        assert answers[-1]["Retry-After"] == answers[-1]["RateLimit-Reset"]
        writes = [api.post("/tokens?dry_run=true", {"name": "a", "scopes": ["members:read"]}) for api in tokens]
        assert [answer.status_code for answer in writes] == [201] * 3 + [429]
        assert Api.of(make_member()).get("/members").status_code == 200


def test_a_token_over_its_own_rate_takes_nothing_from_the_others_of_its_tenant(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_READS_PER_MINUTE_MAX", 4)
    monkeypatch.setattr(limits, "API_TENANT_READS_PER_MINUTE_MAX", 8)
    member = make_member()
    greedy, other = Api.of(member), Api.of(member)
    with override_settings(REDIS_URL=redis_url):
        assert [greedy.get("/members").status_code for _ in range(30)] == [200] * 4 + [429] * 26
        assert [other.get("/members").status_code for _ in range(5)] == [200] * 4 + [429]
