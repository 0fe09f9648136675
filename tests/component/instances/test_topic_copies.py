"""Copies of topics with their messages: begun by REST, carried on in turns, stopped, continued, and failed cleanly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from instances.copying import turns
from instances.copying.interfaces import record_log
from instances.copying.limits import (
    COPIES_PER_TENANT_MAX,
    COPY_BATCH_OVERHEAD_BYTES,
    COPY_EVERY_S,
    COPY_RESOLVE_AFTER_S,
    COPY_STALLED_S,
    ENDED_COPIES_KEPT_MAX,
)
from instances.copying.models import CopyState, TopicCopy
from instances.models import Instance
from instances.topic_models import TopicMask
from instances.topics import inherited
from tenants.choices import Role, Scope
from tenants.errors import Invalid, QuotaExceeded, Unavailable
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member, make_token
from tests.testkit.beside import is_any_session_waiting, start_beside
from tests.testkit.fake_data_plane import FakeDataPlane, FakeObservation
from tests.testkit.fake_records import FakeRecords
from tests.testkit.fleet import make_running, plugged
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db

SOURCE, TARGET = "orders", "orders.copy"
PER_PARTITION = 11


@pytest.fixture
def kept_records(data_plane: FakeDataPlane) -> Iterator[FakeRecords]:
    cache.clear()
    result = FakeRecords(data_plane)
    with plugged(record_log, result):
        yield result


@pytest.fixture
def instance(owner: Member, data_plane: FakeDataPlane, kept_records: FakeRecords) -> Instance:
    running = make_running(owner.tenant)
    data_plane.add(running.pk, SOURCE)
    kept_records.fill(running.pk, SOURCE, PER_PARTITION)
    return running


@pytest.fixture
def at(instance: Instance) -> str:
    return f"/instances/{instance.pk}"


def begin(api: Api, at: str, name: str = TARGET) -> dict[str, Any]:
    answer = api.post(f"{at}/topics/{SOURCE}/clone", {"name": name, "copy": "records"})
    assert answer.status_code == 202, answer.content
    result: dict[str, Any] = answer.json()
    assert answer["Location"] == f"/api/v1{at}/topic-copies/{result['id']}"
    return result


def turn(now: datetime | None = None) -> None:
    for copy_id in turns.due_copies():
        turns.run_turn(copy_id, deadline_s=time.monotonic() + 60, now=now or timezone.now())


def shown(api: Api, at: str, copy_id: str) -> dict[str, Any]:
    result: dict[str, Any] = api.get(f"{at}/topic-copies/{copy_id}").json()
    return result


def assert_whole(kept_records: FakeRecords, instance: Instance) -> None:
    assert kept_records.logs[instance.pk, TARGET] == kept_records.logs[instance.pk, SOURCE]


def test_messages_are_copied_by_partition_in_order_and_the_audit_log_says_so(
    api: Api, at: str, instance: Instance, kept_records: FakeRecords
) -> None:
    begun = begin(api, at)
    total = 3 * PER_PARTITION
    assert (begun["state"], begun["progress"], begun["total_offsets"]) == ("running", 0.0, total)
    for kept in kept_records.logs[instance.pk, SOURCE].values():
        kept.append(b"arrived since")
    turn()
    done = shown(api, at, begun["id"])
    assert (done["state"], done["progress"], done["copied_messages"], done["error"]) == ("succeeded", 1.0, total, None)
    for kept in kept_records.logs[instance.pk, SOURCE].values():
        kept.pop()
    assert_whole(kept_records, instance)
    actions = AuditEntry.objects.filter(target_id=f"{instance.pk}/{TARGET}").values_list("action", flat=True)
    assert sorted(actions) == ["topic.copied", "topic.copy_started", "topic.created"]
    assert [item["id"] for item in api.get(f"{at}/topic-copies").json()["items"]] == [begun["id"]]


def test_a_topic_without_messages_is_copied_at_once(api: Api, at: str, instance: Instance, data_plane: Any) -> None:
    data_plane.add(instance.pk, "empty")
    answer = api.post(f"{at}/topics/empty/clone", {"name": "also-empty", "copy": "records"})
    assert (answer.status_code, answer.json()["progress"]) == (202, 1.0)
    turn()
    assert shown(api, at, answer.json()["id"])["state"] == "succeeded"


def test_a_turn_ends_when_its_share_of_the_bandwidth_is_used_up(
    api: Api, at: str, instance: Instance, kept_records: FakeRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_id = begin(api, at)["id"]
    Instance.objects.filter(pk=instance.pk).update(bandwidth_mb_s=1)
    monkeypatch.setattr(turns, "bytes_per_s", lambda bandwidth: 20 // COPY_EVERY_S if bandwidth == 1 else 0)
    turn()
    running = shown(api, at, copy_id)
    assert running["state"] == "running"
    assert 0 < running["progress"] < 1
    reads = kept_records.reads
    for _ in range(20):
        turn()
    assert shown(api, at, copy_id)["state"] == "succeeded"
    assert kept_records.reads > reads
    assert_whole(kept_records, instance)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_lost_answer_is_looked_up_and_nothing_is_copied_twice(
    is_stored: bool, api: Api, at: str, instance: Instance, kept_records: FakeRecords
) -> None:
    copy_id = begin(api, at)["id"]
    kept_records.lost_writes, kept_records.stores_lost_writes = 1, is_stored
    turn()
    waiting = shown(api, at, copy_id)
    assert (waiting["state"], waiting["error"]["code"]) == ("running", "outcome_unknown")
    reads = kept_records.reads
    turn()
    assert kept_records.reads == reads, "brokers may still carry it out"
    turn(timezone.now() + timedelta(seconds=COPY_RESOLVE_AFTER_S + 1))
    done = shown(api, at, copy_id)
    assert (done["state"], done["copied_messages"], done["error"]) == ("succeeded", 3 * PER_PARTITION, None)
    assert_whole(kept_records, instance)


def test_a_worker_that_dies_after_a_write_leaves_what_the_next_one_needs(
    api: Api, at: str, instance: Instance, kept_records: FakeRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_id = begin(api, at)["id"]

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(turns._Turn, "_advance", killed)
        turn()
    assert TopicCopy.objects.get(pk=copy_id).in_flight is not None
    turn(timezone.now() + timedelta(seconds=COPY_RESOLVE_AFTER_S + 1))
    assert shown(api, at, copy_id)["state"] == "succeeded"
    assert_whole(kept_records, instance)


def test_a_lost_answer_beside_another_writer_fails_the_copy(
    api: Api, at: str, instance: Instance, kept_records: FakeRecords
) -> None:
    copy_id = begin(api, at)["id"]
    kept_records.lost_writes = 1
    turn()
    for kept in kept_records.logs[instance.pk, TARGET].values():
        kept.append(b"from another client")
    turn(timezone.now() + timedelta(seconds=COPY_RESOLVE_AFTER_S + 1))
    failed = shown(api, at, copy_id)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "other_writer")
    assert AuditEntry.objects.get(action="topic.copy_failed").after["code"] == "other_writer"


def test_a_refused_write_fails_the_copy_which_goes_on_later_where_it_stopped(
    api: Api, at: str, instance: Instance, kept_records: FakeRecords
) -> None:
    copy_id = begin(api, at)["id"]
    kept_records.refused = QuotaExceeded("The storage is full.", code="quota_exceeded")
    turn()
    assert shown(api, at, copy_id)["error"] == {"code": "quota_exceeded", "detail": "The storage is full."}
    kept_records.refused = None
    assert api.post(f"{at}/topic-copies/{copy_id}/resume").json()["state"] == "running"
    turn()
    assert shown(api, at, copy_id)["state"] == "succeeded"
    assert_whole(kept_records, instance)
    assert_problem(api.post(f"{at}/topic-copies/{copy_id}/resume"), 409, "not_resumable")


def test_brokers_that_do_not_answer_are_waited_for_and_then_the_copy_fails(
    api: Api, at: str, kept_records: FakeRecords
) -> None:
    copy_id = begin(api, at)["id"]
    kept_records.trouble = Unavailable("No broker leads a partition at the moment. Nothing is lost.")
    turn()
    assert shown(api, at, copy_id)["state"] == "running"
    turn(timezone.now() + timedelta(seconds=COPY_STALLED_S + 1))
    failed = shown(api, at, copy_id)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "stalled")


@pytest.mark.parametrize("gone", [SOURCE, TARGET])
def test_a_topic_that_is_deleted_or_made_again_fails_the_copy(
    gone: str, api: Api, at: str, instance: Instance, kept_records: FakeRecords, data_plane: FakeDataPlane
) -> None:
    copy_id = begin(api, at)["id"]
    kept_records.trouble = Unavailable("later")
    turn()
    cache.clear()
    del data_plane.descriptions[instance.pk, gone]
    turn()
    assert shown(api, at, copy_id)["error"]["code"] == "topic_gone"


def test_messages_deleted_before_they_are_copied_are_counted(
    api: Api, at: str, instance: Instance, kept_records: FakeRecords
) -> None:
    copy_id = begin(api, at)["id"]
    kept_records.first_offsets[instance.pk, SOURCE, 0] = 4
    turn()
    done = shown(api, at, copy_id)
    assert (done["state"], done["missed_offsets"]) == ("succeeded", 4)
    assert done["copied_messages"] == 3 * PER_PARTITION - 4


def test_a_copy_is_cancelled_and_goes_on(api: Api, at: str, instance: Instance, kept_records: FakeRecords) -> None:
    copy_id = begin(api, at)["id"]
    assert api.delete(f"{at}/topic-copies/{copy_id}?dry_run=true").status_code == 204
    assert shown(api, at, copy_id)["state"] == "running"
    assert api.delete(f"{at}/topic-copies/{copy_id}").status_code == 204
    turn()
    assert (shown(api, at, copy_id)["state"], kept_records.reads) == ("cancelled", 0)
    assert_problem(api.delete(f"{at}/topic-copies/{copy_id}"), 409, "already_ended")
    api.post(f"{at}/topic-copies/{copy_id}/resume")
    turn()
    assert_whole(kept_records, instance)
    actions = set(AuditEntry.objects.filter(target_id=f"{instance.pk}/{TARGET}").values_list("action", flat=True))
    assert {"topic.copy_cancelled", "topic.copy_resumed", "topic.copied"} <= actions


def test_a_dry_run_creates_neither_topic_nor_copy(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    answer = api.post(f"{at}/topics/{SOURCE}/clone?dry_run=true", {"name": TARGET, "copy": "records"})
    assert (answer.status_code, answer.json()["id"], answer.json()["total_offsets"]) == (202, None, 3 * PER_PARTITION)
    assert "Location" not in answer.headers
    assert not TopicCopy.objects.exists()
    assert (instance.pk, TARGET) not in data_plane.descriptions


def test_one_copy_of_an_instance_and_few_of_a_tenant_run_at_once(
    api: Api, at: str, owner: Member, data_plane: FakeDataPlane, kept_records: FakeRecords
) -> None:
    begin(api, at)
    clone = {"name": "second", "copy": "records"}
    refused = assert_problem(api.post(f"{at}/topics/{SOURCE}/clone", clone), 409, "copies_running")
    assert "Wait" in refused["detail"]
    for number in range(COPIES_PER_TENANT_MAX):
        other = make_running(owner.tenant)
        data_plane.add(other.pk, SOURCE)
        answer = api.post(f"/instances/{other.pk}/topics/{SOURCE}/clone", clone)
        assert (answer.status_code == 202) == (number + 1 < COPIES_PER_TENANT_MAX)


def test_ended_copies_are_kept_up_to_a_number(api: Api, at: str, instance: Instance) -> None:
    for number in range(ENDED_COPIES_KEPT_MAX + 1):
        TopicCopy.objects.create(
            instance=instance, source=SOURCE, source_id="x", target=f"t{number:03}", total_offsets=0,
            state=CopyState.SUCCEEDED, created_at=timezone.now() - timedelta(minutes=100 - number), asked_by="ida",
        )  # fmt: skip
    begin(api, at)
    targets = set(TopicCopy.objects.values_list("target", flat=True))
    assert (len(targets), "t000" in targets, "t001" in targets) == (ENDED_COPIES_KEPT_MAX + 1, False, True)


def test_a_copy_that_the_storage_does_not_hold_is_refused(
    api: Api, at: str, instance: Instance, observation: FakeObservation, data_plane: FakeDataPlane
) -> None:
    observation.sizes[SOURCE] = (instance.storage_bytes * 2 // 3, 5)
    observation.stored_by_topic[SOURCE] = instance.storage_bytes * 2 // 3
    answer = api.post(f"{at}/topics/{SOURCE}/clone", {"name": TARGET, "copy": "records"})
    assert_problem(answer, 403, "no_storage_left")
    assert (instance.pk, TARGET) not in data_plane.descriptions


def test_roles_without_the_permission_and_other_tenants_are_refused(api: Api, at: str, owner: Member) -> None:
    copy_id = begin(api, at)["id"]
    viewer, stranger = Api.of(make_member(Role.VIEWER, owner.tenant)), Api.of(make_member())
    blind = Api.of(owner, scopes=[Scope.TOPICS_READ, Scope.TOPICS_WRITE])
    assert viewer.get(f"{at}/topic-copies/{copy_id}").status_code == 200
    for caller, status, code in (
        (viewer, 403, "permission_denied"), (blind, 403, "permission_denied"), (stranger, 404, "not_found"),
    ):  # fmt: skip
        body = {"name": "mine", "copy": "records"}
        assert_problem(caller.post(f"{at}/topics/{SOURCE}/clone", body), status, code)
        assert_problem(caller.delete(f"{at}/topic-copies/{copy_id}"), status, code)
        assert_problem(caller.post(f"{at}/topic-copies/{copy_id}/resume"), status, code)
    assert_problem(stranger.get(f"{at}/topic-copies"), 404, "not_found")
    assert_problem(stranger.get(f"{at}/topic-copies/{copy_id}"), 404, "not_found")
    other = make_running(owner.tenant)
    assert_problem(api.get(f"/instances/{other.pk}/topic-copies/{copy_id}"), 404, "not_found")


def test_the_least_and_the_most_that_may_be_asked_for(api: Api, at: str) -> None:
    for body in ({"name": TARGET, "copy": "all"}, {"name": "", "copy": "records"}, {"copy": "records"}):
        assert_problem(api.post(f"{at}/topics/{SOURCE}/clone", body), 400)
    assert_problem(api.post(f"{at}/topics/{SOURCE}/clone", {"name": SOURCE, "copy": "records"}), 409, "already_exists")
    assert not TopicCopy.objects.exists()


def test_batches_are_as_large_as_the_copy_accepts(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane, kept_records: FakeRecords
) -> None:
    begin(api, at)
    data_plane.configs[instance.pk, SOURCE][turns.MAX_MESSAGE_BYTES] = "9000"
    data_plane.configs[instance.pk, TARGET][turns.MAX_MESSAGE_BYTES] = "5000"
    turn()
    assert kept_records.batch_bytes_max == 5_000 - COPY_BATCH_OVERHEAD_BYTES


def test_a_message_that_the_copy_does_not_accept_fails_it_with_the_brokers_words(
    api: Api, at: str, kept_records: FakeRecords
) -> None:
    copy_id = begin(api, at)["id"]
    kept_records.refused = Invalid("The timestamp is out of range.", code="invalid_timestamp")
    turn()
    assert shown(api, at, copy_id)["error"]["code"] == "invalid_timestamp"


def mask(api: Api, at: str, topic: str, *paths: str) -> Any:
    return api.put(f"{at}/topics/{topic}/masks", {"masks": [{"part": "value", "path": path} for path in paths]})


def masks(instance: Instance, topic: str) -> list[str]:
    return sorted(TopicMask.objects.filter(instance=instance, topic=topic).values_list("path", flat=True))


def test_a_mask_that_is_set_while_messages_are_copied_hides_them_in_the_clone_too(
    api: Api, at: str, instance: Instance, kept_records: FakeRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask(api, at, SOURCE, ".card")
    begin(api, at)
    mask(api, at, TARGET, ".card", ".own")
    assert mask(api, at, SOURCE, ".card", ".name").status_code == 200
    assert masks(instance, TARGET) == [".card", ".name", ".own"]
    entry = AuditEntry.objects.filter(action="topic_masks.changed", target_id=f"{instance.pk}/{TARGET}").latest("time")
    assert entry.after == {"from": SOURCE, "added": ["value .name"]}
    monkeypatch.setattr(inherited, "MASKS_PER_INSTANCE_MAX", 6)
    assert_problem(mask(api, at, SOURCE, ".card", ".name", ".other"), 403, "quota_exceeded")
    assert masks(instance, SOURCE) == [".card", ".name"], "what the clone has no room for is not half done"
    monkeypatch.undo()
    mask(api, at, SOURCE)
    assert masks(instance, TARGET) == [".card", ".name", ".own"], "a mask is lifted where it is lifted"
    turn()
    mask(api, at, SOURCE, ".late")
    assert masks(instance, TARGET) == [".card", ".name", ".own"]


def test_a_copy_that_goes_on_takes_the_masks_of_its_topic_first(api: Api, at: str, instance: Instance) -> None:
    copy_id = begin(api, at)["id"]
    api.delete(f"{at}/topic-copies/{copy_id}")
    mask(api, at, SOURCE, ".card")
    assert masks(instance, TARGET) == []
    assert api.post(f"{at}/topic-copies/{copy_id}/resume").status_code == 200
    assert masks(instance, TARGET) == [".card"]


@pytest.mark.django_db(transaction=True)
def test_a_mask_that_is_set_while_a_clone_is_being_made_reaches_the_clone(
    data_plane: FakeDataPlane, kept_records: FakeRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = make_member()
    instance, token = make_running(owner.tenant), make_token(owner)
    data_plane.add(instance.pk, SOURCE)
    kept_records.fill(instance.pk, SOURCE, PER_PARTITION)
    at = f"/instances/{instance.pk}"
    create = FakeDataPlane.create_topic
    begun: list[Any] = []

    def slowly(self: FakeDataPlane, *args: Any, **options: Any) -> None:
        """The clone has its masks and is not committed yet."""
        begun.append(start_beside(lambda: mask(Api(token), at, SOURCE, ".card")))
        eventually(is_any_session_waiting, within_s=10, what="the mask waits for the clone")
        create(self, *args, **options)

    monkeypatch.setattr(FakeDataPlane, "create_topic", slowly)
    begin(Api(token), at)
    ((thread, failed),) = begun
    thread.join(20)
    assert not failed
    assert masks(instance, SOURCE) == masks(instance, TARGET) == [".card"]
