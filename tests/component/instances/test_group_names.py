"""Groups with unusual names, and lists of partitions, over REST."""

from __future__ import annotations

import pytest

from instances.models import Instance
from tests.component.instances.conftest import FakeGroups
from tests.component.instances.test_groups_api import at, good, instance
from tests.testkit.api_cases import Api, assert_problem

__all__ = ["instance"]  # a fixture

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "name", ["x/offsets", "offsets", "a/b", "/", "x/offsets/offsets", "%2F", "a%2Fb", "..", "a\nb", "é"]
)
def test_a_group_is_reached_whatever_its_name_is(api: Api, instance: Instance, groups: FakeGroups, name: str) -> None:
    groups.add(instance.pk, name, {("orders", 0): 40})
    assert good(api.get(at(instance, name)))["id"] == name
    assert good(api.post(at(instance, name, "offsets") + "?dry_run=true", {"to": "earliest"}))["group"] == name
    good(api.delete(at(instance, name)), 204)
    assert_problem(api.get(at(instance, name)), 404)


def test_partitions_named_one_by_one_must_be_there_or_have_an_offset(
    api: Api, instance: Instance, groups: FakeGroups
) -> None:
    named = [{"topic": "orders", "partition": 0, "offset": 5}, {"topic": "nope", "partition": 0, "offset": 5}]
    problem = assert_problem(api.post(at(instance, "etl", "offsets"), {"to": "given", "offsets": named}), 400)
    assert [item["pointer"] for item in problem["errors"]] == ["/offsets/1"]
    assert groups.committed(instance.pk, "etl")[("orders", 0)] == 40
