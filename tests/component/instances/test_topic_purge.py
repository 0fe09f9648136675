"""Purge of a topic over REST: the plan, its effect, refusals, and audit rows."""

from __future__ import annotations

import pytest

from instances.models import Instance
from tenants.choices import Role, Scope
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fake_groups import FakeGroups
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

PARTITIONS_MAX = 1_000


@pytest.fixture
def instance(owner: Member, data_plane: FakeDataPlane, groups: FakeGroups) -> Instance:
    running = make_running(owner.tenant)
    data_plane.add(running.pk, "orders", 3)
    groups.logs = {("orders", 0): (10, 110), ("orders", 1): (0, 50), ("orders", 2): (7, 7)}
    groups.offset_by_time = {("orders", 0): 30}
    return running


@pytest.fixture
def at(instance: Instance) -> str:
    return f"/instances/{instance.pk}/topics/orders/purge"


def rows() -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action="topic.records_deleted"))


def test_a_dry_run_says_by_partition_how_much_would_go_and_takes_nothing(api: Api, at: str, groups: FakeGroups) -> None:
    before = dict(groups.logs)
    answer = api.post(f"{at}?dry_run=true", {"before": {"0": 60, "1": -1, "2": 3}})
    assert answer.status_code == 200, answer.content
    assert answer.json()["messages"] == 100
    lines = [(line["partition"], line["first_offset"], line["messages"]) for line in answer.json()["partitions"]]
    assert lines == [(0, 60, 50), (1, 50, 50), (2, 7, 0)]
    assert groups.logs == before
    assert not rows()


def test_the_named_records_are_deleted_and_the_audit_log_has_both_ends(api: Api, at: str, groups: FakeGroups) -> None:
    assert api.post(at, {"before": {"0": 60, "2": 0}}).status_code == 200
    assert groups.logs == {("orders", 0): (60, 110), ("orders", 1): (0, 50), ("orders", 2): (7, 7)}
    (entry,) = rows()
    assert entry.before == {"offsets": [[0, 10]]}
    assert entry.after == {"partitions": 1, "messages": 50, "offsets": [[0, 60]]}


def test_before_a_time_all_older_messages_of_every_partition_go(api: Api, at: str, groups: FakeGroups) -> None:
    assert api.post(at, {"before": "2026-11-28T00:00:00Z"}).json()["messages"] == 70
    assert groups.logs == {("orders", 0): (30, 110), ("orders", 1): (50, 50), ("orders", 2): (7, 7)}


def test_a_purge_that_finds_nothing_writes_no_row(api: Api, at: str) -> None:
    assert api.post(at, {"before": {"2": -1}}).json()["messages"] == 0
    assert not rows()


def test_a_topic_that_is_only_compacted_is_refused_with_the_reason(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.configs[instance.pk, "orders"] = {"cleanup.policy": "compact"}
    for query in ("", "?dry_run=true"):
        problem = assert_problem(api.post(at + query, {"before": {"0": -1}}), 409, "policy_violation")
        assert "cleanup.policy" in problem["detail"]
    data_plane.configs[instance.pk, "orders"] = {"cleanup.policy": "compact,delete"}
    assert api.post(at, {"before": {"0": -1}}).status_code == 200


def test_partitions_that_refuse_are_named_and_the_row_has_the_others(api: Api, at: str, groups: FakeGroups) -> None:
    groups.refused_partitions = {("orders", 1)}
    answer = api.post(at, {"before": {"0": -1, "1": -1}}).json()
    assert answer["messages"] == 100
    first, second = answer["partitions"]
    assert (first["error"], second["error"]["code"]) == (None, "unavailable")
    assert (second["first_offset"], second["messages"]) == (0, 0)
    (entry,) = rows()
    assert entry.after == {"partitions": 1, "messages": 100, "offsets": [[0, 110]]}


def test_where_every_partition_refuses_the_request_failed(api: Api, at: str, groups: FakeGroups) -> None:
    groups.refused_partitions = {("orders", 1)}
    assert_problem(api.post(at, {"before": {"1": -1}}), 503, "unavailable")
    assert not rows()


def test_a_leader_that_does_not_answer_leaves_all_as_it_is(api: Api, at: str, groups: FakeGroups) -> None:
    groups.unresponsive_partitions = {("orders", 1)}
    problem = assert_problem(api.post(at, {"before": "2026-11-28T00:00:00Z"}), 503, "unavailable")
    assert "1" in problem["detail"]
    assert groups.logs["orders", 0] == (10, 110)


@pytest.mark.parametrize(
    "before",
    [
        None, {}, [], "", "yesterday", "2026-11-28T00:00:00", "1969-12-31T23:59:59Z", {"0": "5"}, {"0": -2},
        {"0": True}, {"0": 2**63}, {"-1": 0}, {"00": 0}, {"٣": 0}, {"a": 0}, {"": 0}, {"12345": 0}, 5,
        {str(index): 0 for index in range(PARTITIONS_MAX + 1)},
    ],
)  # fmt: skip
def test_an_invalid_offset_is_refused_at_its_field(api: Api, at: str, before: object) -> None:
    problem = assert_problem(api.post(at, {"before": before}), 400, None)
    assert problem["errors"][0]["pointer"].startswith("/before")


def test_a_partition_or_an_offset_that_is_not_there_is_named(api: Api, at: str, groups: FakeGroups) -> None:
    before = dict(groups.logs)
    unknown = assert_problem(api.post(at, {"before": {"0": 20, "3": 0}}), 400, None)
    assert [error["pointer"] for error in unknown["errors"]] == ["/before/3"]
    past = assert_problem(api.post(at, {"before": {"0": 20, "1": 51}}), 400, "offset_out_of_range")
    assert [error["pointer"] for error in past["errors"]] == ["/before/1"]
    assert groups.logs == before


def test_the_longest_legal_purge_is_answered(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane, groups: FakeGroups
) -> None:
    data_plane.add(instance.pk, "orders", PARTITIONS_MAX)
    groups.logs = {("orders", index): (0, 2**62) for index in range(PARTITIONS_MAX)}
    answer = api.post(at, {"before": {str(index): 2**62 for index in range(PARTITIONS_MAX)}})
    assert answer.status_code == 200, answer.content
    assert answer.json()["messages"] == PARTITIONS_MAX * 2**62
    assert len(rows()[0].after["offsets"]) == PARTITIONS_MAX


def test_strangers_find_nothing_and_readers_may_not(api: Api, at: str, owner: Member, groups: FakeGroups) -> None:
    before = dict(groups.logs)
    body = {"before": {"0": -1}}
    assert_problem(Api.of(make_member()).post(at, body), 404, None)
    reader = Api.of(make_member(Role.VIEWER, owner.tenant))
    assert_problem(reader.post(at, body), 403, None)
    assert_problem(Api.of(owner, scopes=[Scope.TOPICS_READ]).post(at, body), 403, None)
    assert_problem(api.post(at.replace("orders", "none"), body), 404, None)
    assert groups.logs == before
