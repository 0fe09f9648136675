"""Agreement of the limits at `/limits` with those that brokers enforce."""

from __future__ import annotations

import pytest

from brokers.engine.cluster import errors, topic_plans
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db


def published(api: Api, name: str) -> int:
    result = {limit["name"]: limit["value"] for limit in api.get("/limits?page_size=200").json()["items"]}
    return int(result[name])


def test_a_broker_makes_as_many_partitions_as_limits_say_and_not_one_more(api: Api) -> None:
    limit = published(api, "partitions_per_topic_max")
    topic_plans._check_count(limit)
    with pytest.raises(errors.InvalidPartitions):
        topic_plans._check_count(limit + 1)


def test_the_api_refuses_what_a_broker_would(api: Api, owner: Member, data_plane: FakeDataPlane) -> None:
    instance, limit = make_running(owner.tenant), published(api, "partitions_per_topic_max")
    at = f"/instances/{instance.pk}/topics"
    problem = assert_problem(api.post(at, {"name": "wide", "partitions": limit + 1}), 400)
    assert problem["errors"][0]["pointer"] == "/partitions"
    assert api.post(at, {"name": "wide", "partitions": limit}).status_code == 201
