"""/plans, /prices:quote and /instances/{id}/usage: guarantees of the API, and agreement with the rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from billing import services
from billing.models import Plan
from tenants.choices import Scope
from tenants.models import Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.billing import create_usage
from tests.testkit.instances import make_instance

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

MINUTE = datetime(2026, 11, 20, 9, 59, tzinfo=UTC)


@pytest.fixture(autouse=True)
def plans() -> list[Plan]:
    return services.ensure_default_plans()


class TestEndpointsOfBilling(EndpointCases):
    cases = (Case("GET", "/instances/{instance}/usage", Scope.USAGE_READ),)

    def places(self, owner: Member) -> dict[str, str]:
        return {"instance": make_instance(owner.tenant).pk}


def use(instance_id: str, minute: datetime, direction: str, count: int, *, topic: str = "orders") -> None:
    create_usage(instance_id, minute, topic=topic, user="ANONYMOUS", client_id="etl", **{direction: count})


def test_plans_are_listed_smallest_first() -> None:
    answer = Api.of(make_member()).get("/plans")
    assert answer.status_code == 200
    assert [plan["code"] for plan in answer.json()["items"]] == ["brook", "stream", "river", "delta"]
    assert answer.json()["items"][0]["price"]["base_per_hour"] == "0.0600"


@pytest.mark.parametrize("end", ["0001-01-01T00:00:00Z", "0001-01-20T00:00:00Z"])
@pytest.mark.parametrize("step", ["minute", "hour", "day"])
def test_a_span_before_the_calendar_is_refused_or_empty_and_never_a_crash(end: str, step: str) -> None:
    owner = make_member()
    at = f"/instances/{make_instance(owner.tenant).pk}/usage?end={end}&step={step}"
    answer = Api.of(owner).get(at)
    if answer.status_code != 200:
        assert assert_problem(answer, 400, "invalid_request")["errors"][0]["parameter"] in ("start", "end")


def test_making_the_default_plans_twice_changes_nothing() -> None:
    Plan.objects.filter(code="brook").update(name="Creek")
    services.ensure_default_plans()
    assert Plan.objects.get(code="brook").name == "Creek"
    assert Plan.objects.count() == 4
    assert Plan.objects.get(code="brook").prices.count() == 1


def test_a_quote_without_a_plan_takes_the_smallest_that_can_hold_it() -> None:
    token = Api.of(make_member())
    answer = token.get("/prices:quote?bandwidth_mb_s=50&storage_gb=100")
    assert answer.status_code == 200
    body = answer.json()
    assert body["plan"] == "stream"
    assert [line["component"] for line in body["lines"]] == ["base", "bandwidth"]
    assert body["per_hour"] == "0.4500"
    assert body["per_month"] == "328.50"


def test_a_quote_beyond_the_plan_says_how_far_it_goes() -> None:
    answer = Api.of(make_member()).get("/prices:quote?plan=brook&bandwidth_mb_s=21")
    problem = assert_problem(answer, 400)
    assert problem["errors"][0]["parameter"] == "bandwidth_mb_s"
    assert "20" in problem["errors"][0]["detail"]


@pytest.mark.parametrize("query", ["plan=ocean", "bandwidth_mb_s=999999"])
def test_a_quote_no_plan_can_hold_is_not_found(query: str) -> None:
    assert_problem(Api.of(make_member()).get(f"/prices:quote?{query}"), 404)


def test_usage_sums_minutes_into_steps_and_totals() -> None:
    member = make_member()
    instance = make_instance(member.tenant)
    use(instance.pk, MINUTE, "produce", 100)
    use(instance.pk, MINUTE.replace(hour=10, minute=0), "produce", 7)
    use(instance.pk, MINUTE, "consume", 40, topic="clicks")
    use(make_instance(make_member().tenant).pk, MINUTE, "produce", 10**12)
    body = (
        Api.of(member)
        .get(f"/instances/{instance.pk}/usage?start=2026-11-20T00:00:00Z&end=2026-11-21T00:00:00Z&step=hour")
        .json()
    )
    assert body["totals"] == {
        "produce_bytes": 107, "consume_bytes": 40, "produce_requests": 2, "consume_requests": 1
    }  # fmt: skip
    assert [(item["start"], item["direction"], item["bytes"]) for item in body["items"]] == [
        ("2026-11-20T09:00:00Z", "consume", 40),
        ("2026-11-20T09:00:00Z", "produce", 100),
        ("2026-11-20T10:00:00Z", "produce", 7),
    ]


def test_usage_pages_go_through_every_row_once() -> None:
    member = make_member()
    instance = make_instance(member.tenant)
    for minute in range(7):
        use(instance.pk, MINUTE.replace(minute=minute), "produce", minute + 1)
    path = (
        f"/instances/{instance.pk}/usage?start=2026-11-20T09:00:00Z&end=2026-11-20T10:00:00Z&step=minute&group_by=topic"
        "&page_size=3"
    )
    api, token, seen = Api.of(member), "", []
    while token is not None:
        body = api.get(path + (f"&page_token={token}" if token else "")).json()
        seen += [item["bytes"] for item in body["items"]]
        token = body["next_page_token"]
    assert seen == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "query",
    ["start=2026-11-21T00:00:00Z&end=2026-11-20T00:00:00Z", "step=minute&start=2020-01-01T00:00:00Z", "step=year"],
)
def test_a_span_that_cannot_be_answered_is_refused(query: str) -> None:
    member = make_member()
    assert_problem(Api.of(member).get(f"/instances/{make_instance(member.tenant).pk}/usage?{query}"), 400)


def test_plans_and_quotes_need_a_token() -> None:
    assert_problem(Api().get("/plans"), 401)
    assert_problem(Api().get("/prices:quote"), 401)
