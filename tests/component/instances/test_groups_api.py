"""Consumer groups and transactions over REST: descriptions, resets, refusals and undo."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from instances import services
from instances.groups import selectors
from instances.interfaces import BrokerUnresponsive
from instances.limits import RESET_PARTITIONS_MAX
from instances.models import Instance
from tenants.actors import Actor, member_actor
from tenants.models import AuditEntry, Member
from tests.component.instances.conftest import FakeDataPlane, FakeGroups
from tests.component.instances.two_groups import TARGETS, with_groups
from tests.testkit.api_cases import Api, assert_problem, make_member

pytestmark = pytest.mark.django_db


@pytest.fixture()
def acting(owner: Member) -> Actor:
    return member_actor(owner)


@pytest.fixture()
def instance(owner: Member, groups: FakeGroups, data_plane: FakeDataPlane) -> Instance:
    return with_groups(owner.tenant, groups, data_plane)


def at(instance: Instance, *parts: str) -> str:
    return "/".join((f"/instances/{instance.pk}/groups", *(quote(part, safe="") for part in parts)))


def good(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.content
    return json.loads(answer.content) if answer.content else None


def test_groups_are_listed_with_lag_and_their_worst_partition(api: Api, instance: Instance) -> None:
    body = good(api.get(at(instance)))
    etl, live = body["items"]
    assert (etl["id"], etl["state"], etl["members"], etl["partitions"], etl["lag"]) == ("etl", "Empty", 0, 3, 66)
    assert etl["worst"] == {"topic": "orders", "partition": 0, "lag": 60}
    assert (live["state"], live["members"], live["lag"], live["coordinator"]) == ("Stable", 2, 10, 1)
    assert body["silent"] == [] and body["next_page_token"] is None


def test_only_the_groups_of_a_page_are_asked_for(api: Api, instance: Instance, groups: FakeGroups) -> None:
    for number in range(120):
        groups.add(instance.pk, f"g-{number:03}", {})
    groups.described_ids.clear()
    first = good(api.get(at(instance) + "?page_size=50&contains=g-"))
    assert [item["id"] for item in first["items"]] == [f"g-{number:03}" for number in range(50)]
    assert [len(asked) for asked in groups.described_ids] == [50]
    token = first["next_page_token"]
    second = good(api.get(at(instance) + f"?page_size=50&contains=g-&page_token={token}"))
    assert second["items"][0]["id"] == "g-050"
    assert_problem(api.get(at(instance) + f"?page_size=50&page_token={token}"), 400, "invalid_page_token")


def test_groups_are_filtered_by_state(api: Api, instance: Instance) -> None:
    assert [item["id"] for item in good(api.get(at(instance) + "?state=Stable"))["items"]] == ["live"]
    assert_problem(api.get(at(instance) + "?state=Odd"), 400)


def test_an_unanswered_part_is_named_and_the_rest_is_returned(api: Api, instance: Instance, groups: FakeGroups) -> None:
    groups.silent = (BrokerUnresponsive(broker_id=3, reason="does not answer"),)
    groups.unresponsive_groups.add("live")
    groups.unresponsive_partitions.add(("clicks", 0))
    body = good(api.get(at(instance)))
    etl, live = body["items"]
    assert body["silent"] == [{"broker_id": 3, "reason": "does not answer"}]
    assert (live["members"], live["lag"], live["trouble"]) == (None, None, "broker 1 does not answer")
    assert (etl["lag"], etl["partitions"]) == (None, 3)
    detail = good(api.get(at(instance, "etl")))
    assert (detail["lag"], detail["lag_unknown"]) == (60, 1)
    assert_problem(api.get(at(instance, "live")), 503, "unavailable")


def test_a_group_tells_its_members_and_every_partition(api: Api, instance: Instance) -> None:
    answer = api.get(at(instance, "live"))
    assert answer["ETag"]
    body = good(answer)
    assert (body["protocol"], body["lag"], body["lag_unknown"]) == ("range", 10, 0)
    first, second = body["members"]
    assert (first["client_id"], first["host"], first["instance_id"]) == ("a", "10.0.0.7", None)
    assert first["assignment"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert second["instance_id"] == "b-1"
    lines = {(line["topic"], line["partition"]): line for line in body["offsets"]}
    assert lines["orders", 0] == {
        "topic": "orders", "partition": 0, "committed": 90, "metadata": "", "log_start": 10, "log_end": 100,
        "lag": 10, "member_id": "a-id",
    }  # fmt: skip
    assert (lines["orders", 2]["committed"], lines["orders", 2]["lag"]) == (None, None)
    only = good(api.get(at(instance, "etl") + "?topic=clicks"))
    assert [line["topic"] for line in only["offsets"]] == ["clicks"]


@pytest.mark.parametrize("name", ["with/slash", "mit Leerzeichen", "消费组", "a..b", "%41", "x" * 300])
def test_a_group_may_have_any_name(name: str, api: Api, instance: Instance, groups: FakeGroups) -> None:
    groups.add(instance.pk, name, {("clicks", 0): 3})
    assert good(api.get(at(instance, name)))["id"] == name
    good(api.post(at(instance, name, "offsets"), {"to": "latest"}))
    assert groups.committed(instance.pk, name) == {("clicks", 0): 9}
    good(api.delete(at(instance, name)), 204)
    assert_problem(api.get(at(instance, name)), 404, "not_found")


# --- resetting --------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_table_and_moves_nothing(api: Api, instance: Instance, groups: FakeGroups) -> None:
    before = groups.committed(instance.pk, "etl")
    answer = api.post(at(instance, "etl", "offsets") + "?dry_run=true", {"to": "shift", "by": -40})
    body = good(answer)
    assert answer["Dry-Run"] == "true"
    assert body["changed"] == 3
    lines = {(line["topic"], line["partition"]): line for line in body["offsets"]}
    assert (lines["orders", 0]["before"], lines["orders", 0]["after"]) == (40, 10)
    assert lines["orders", 0]["clipped"] == "start"
    assert (lines["orders", 1]["after"], lines["orders", 1]["clipped"], lines["orders", 1]["lag_after"]) == (
        10, None, 40,
    )  # fmt: skip
    assert groups.committed(instance.pk, "etl") == before
    assert not AuditEntry.objects.filter(action="group.offsets_reset").exists()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"to": "earliest"}, {("orders", 0): 10, ("orders", 1): 0, ("clicks", 0): 0}),
        ({"to": "latest"}, {("orders", 0): 100, ("orders", 1): 50, ("clicks", 0): 9}),
        ({"to": "offset", "offset": 45}, {("orders", 0): 45, ("orders", 1): 45, ("clicks", 0): 9}),
        ({"to": "time", "time": "2026-11-22T00:00:00Z"}, {("orders", 0): 77, ("orders", 1): 50, ("clicks", 0): 9}),
        ({"to": "latest", "topics": [{"name": "clicks"}]}, {("orders", 0): 40, ("orders", 1): 50, ("clicks", 0): 9}),
        (
            {"to": "earliest", "topics": [{"name": "orders", "partitions": [1, 2]}]},
            {("orders", 0): 40, ("orders", 1): 0, ("orders", 2): 0, ("clicks", 0): 3},
        ),
        (
            {"to": "given", "offsets": [{"topic": "orders", "partition": 0, "offset": 99},
                                        {"topic": "clicks", "partition": 0, "offset": None}]},
            {("orders", 0): 99, ("orders", 1): 50},
        ),
    ],
)  # fmt: skip
def test_offsets_are_reset(
    body: dict[str, Any], expected: dict[tuple[str, int], int], api: Api, instance: Instance, groups: FakeGroups
) -> None:
    groups.offset_by_time = {("orders", 0): 77}
    good(api.post(at(instance, "etl", "offsets"), body))
    assert groups.committed(instance.pk, "etl") == expected
    entry = AuditEntry.objects.get(action="group.offsets_reset")
    assert entry.target_id == f"{instance.pk}/etl"
    assert (entry.after or {})["to"] == body["to"]


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"to": "time"}, "/time", "needed"),
        ({"to": "shift"}, "/by", "needed"),
        ({"to": "earliest", "offset": 5}, "/offset", "not_taken"),
        ({"to": "given", "offsets": [{"topic": "t", "partition": 0, "offset": 1}], "topics": [{"name": "t"}]},
         "/topics", "not_taken"),
        ({"to": "latest", "topics": [{"name": "clicks"}, {"name": "nowhere"}]}, "/topics/1/name", "not_found"),
        ({"to": "latest", "topics": [{"name": "clicks", "partitions": [0, 7]}]}, "/topics/0/partitions", "not_found"),
        ({"to": "shift", "by": 1, "topics": [{"name": "orders"}]}, "/by", "no_committed_offset"),
        ({"to": "given", "offsets": [{"topic": "t", "partition": 0, "offset": 1}] * 2}, "/offsets", "repeated"),
        ({"to": "latest", "topics": [{"name": "clicks", "partition": 1}]}, "/topics/0/partition", "unknown_field"),
    ],
)  # fmt: skip
def test_an_impossible_reset_is_refused_with_a_pointer_to_the_field(
    body: dict[str, Any], pointer: str, code: str, api: Api, instance: Instance
) -> None:
    problem = assert_problem(api.post(at(instance, "etl", "offsets"), body), 400)
    assert [(item["pointer"], item["code"]) for item in problem["errors"]] == [(pointer, code)]


def test_a_group_with_members_keeps_its_offsets(api: Api, instance: Instance, groups: FakeGroups) -> None:
    """GRP-21: a commit without a member is accepted only while the group is empty."""
    before = groups.committed(instance.pk, "live")
    for query in ("", "?dry_run=true"):
        problem = assert_problem(
            api.post(at(instance, "live", "offsets") + query, {"to": "latest"}), 409, "group_not_empty"
        )
        assert "Stop them first" in problem["detail"]
    assert_problem(api.delete(at(instance, "live")), 409, "group_not_empty")
    assert groups.committed(instance.pk, "live") == before


def test_the_same_reset_under_one_key_is_done_once(api: Api, instance: Instance, groups: FakeGroups) -> None:
    key = {"Idempotency_Key": "reset-1"}
    path = at(instance, "etl", "offsets")
    first = good(api.post(path, {"to": "shift", "by": 5}, **key))
    again = api.post(path, {"to": "shift", "by": 5}, **key)
    assert good(again) == first
    assert again["Idempotency-Replayed"] == "true"
    assert groups.committed(instance.pk, "etl")["orders", 0] == 45


def test_a_leader_that_is_silent_stops_the_reset_and_is_named(api: Api, instance: Instance, groups: FakeGroups) -> None:
    groups.unresponsive_partitions.add(("orders", 1))
    problem = assert_problem(api.post(at(instance, "etl", "offsets"), {"to": "latest"}), 503, "unavailable")
    assert "orders/1" in problem["detail"]
    good(api.post(at(instance, "etl", "offsets"), {"to": "latest", "topics": [{"name": "clicks"}]}))


def test_offsets_of_a_deleted_topic_do_not_stop_a_reset(
    api: Api, instance: Instance, groups: FakeGroups, data_plane: FakeDataPlane
) -> None:
    data_plane.delete_topic(instance.pk, "clicks")
    del groups.logs["clicks", 0]
    body = good(api.post(at(instance, "etl", "offsets"), {"to": "latest"}))
    assert {line["topic"] for line in body["offsets"]} == {"orders"}


def test_a_reset_that_is_refused_in_part_is_put_back(api: Api, instance: Instance, groups: FakeGroups) -> None:
    before = groups.committed(instance.pk, "etl")
    groups.refused_partitions.add(("orders", 1))
    problem = assert_problem(api.post(at(instance, "etl", "offsets"), {"to": "earliest"}), 503)
    assert "Refused by a test." in problem["detail"]
    assert groups.committed(instance.pk, "etl") == before
    assert not AuditEntry.objects.filter(action="group.offsets_reset").exists()


def test_one_reset_has_a_limit(api: Api, instance: Instance, groups: FakeGroups, data_plane: FakeDataPlane) -> None:
    data_plane.add(instance.pk, "wide", RESET_PARTITIONS_MAX + 1)
    problem = assert_problem(
        api.post(at(instance, "etl", "offsets"), {"to": "latest", "topics": [{"name": "wide"}]}), 400
    )
    assert problem["errors"][0]["code"] == "too_many"


def test_the_answer_to_the_largest_reset_fits_into_an_idempotency_record(
    api: Api, instance: Instance, groups: FakeGroups, data_plane: FakeDataPlane
) -> None:
    name, last = "t" * 249, 2**63 - 1
    data_plane.add(instance.pk, name, RESET_PARTITIONS_MAX)
    groups.logs |= {(name, index): (last - 10**18, last) for index in range(RESET_PARTITIONS_MAX)}
    groups.add(instance.pk, "etl", {(name, index): last - 10**18 - 1 for index in range(RESET_PARTITIONS_MAX)})
    body = good(api.post(at(instance, "etl", "offsets"), {"to": "shift", "by": -1}, Idempotency_Key="big"))
    assert body["offsets"][0]["clipped"] == "start"
    assert len(body["offsets"]) == RESET_PARTITIONS_MAX


# --- undoing and deleting ---------------------------------------------------------------------------------------------


def test_a_group_is_deleted_only_as_it_was_seen(api: Api, instance: Instance, groups: FakeGroups) -> None:
    etag = api.get(at(instance, "etl"))["ETag"]
    groups.add(instance.pk, "etl", {("clicks", 0): 4})
    assert_problem(api.delete(at(instance, "etl"), If_Match=etag), 412)
    good(api.delete(at(instance, "etl"), If_Match=api.get(at(instance, "etl"))["ETag"]), 204)


def test_a_developer_resets_and_a_viewer_only_looks(instance: Instance, owner: Member) -> None:
    viewer = Api.of(make_member("viewer", owner.tenant))
    good(viewer.get(at(instance, "etl")))
    for call in (
        viewer.post(at(instance, "etl", "offsets"), {"to": "latest"}),
        viewer.delete(at(instance, "etl")),
        viewer.delete(at(instance, "etl", "offsets") + "?topic=orders"),
    ):
        assert_problem(call, 403, "permission_denied")
    good(Api.of(make_member("developer", owner.tenant)).post(at(instance, "etl", "offsets"), {"to": "latest"}))


def test_every_route_hides_another_tenants_groups(instance: Instance) -> None:
    stranger = Api.of(make_member())
    for answer in (
        stranger.get(at(instance)),
        stranger.get(at(instance, "etl")),
        stranger.post(at(instance, "etl", "offsets"), {"to": "latest"}),
        stranger.delete(at(instance, "etl", "offsets") + "?topic=orders"),
        stranger.delete(at(instance, "etl")),
        stranger.get(f"/instances/{instance.pk}/transactions"),
        stranger.get(f"/instances/{instance.pk}/transactions/mover"),
    ):
        assert_problem(answer, 404, "not_found")


def test_a_reset_that_moves_nothing_leaves_no_entry(acting: Actor, instance: Instance, groups: FakeGroups) -> None:
    """Such an entry would precede the one that can be undone."""
    first = services.reset_offsets(acting=acting, instance=instance, group="etl", target=TARGETS["earliest"])
    again = services.reset_offsets(acting=acting, instance=instance, group="etl", target=TARGETS["earliest"])
    assert (again.changed, again.entry_id) == ((), "")
    latest = selectors.last_undoable_change(instance, services.group_ref(instance, "etl"))
    assert latest is not None and latest.pk == first.entry_id


def test_a_lag_tells_of_the_partitions_that_one_look_leaves_out(
    api: Api, instance: Instance, groups: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "GROUP_PARTITIONS_SHOWN_MAX", 2)
    body = good(api.get(at(instance, "etl")))
    assert (body["lag"], body["lag_unknown"]) == (66, 1)
    detail = selectors.group_detail(instance, "etl")
    assert (detail.left_out, detail.history) == (1, ())
