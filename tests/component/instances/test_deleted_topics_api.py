"""Undo of a topic's deletion over REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.utils import timezone

from instances import services
from instances.limits import (
    DELETED_TOPICS_EXPIRE_FROM_PERCENT,
    DELETED_TOPICS_MAX,
    PENDING_TOPIC_SHOWN_S,
    PENDING_TOPICS_KEPT_MAX,
    PURGE_RETRIED_AFTER_S,
    PURGES_PER_ROUND_MAX,
)
from instances.metrics import storage_history
from instances.models import DeletedTopic, Instance, TopicAllowList
from instances.topics import pending, table
from tenants.choices import Role
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

TOPIC = "orders"


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture
def at(instance: Instance, data_plane: FakeDataPlane) -> str:
    data_plane.add(instance.pk, TOPIC)
    return f"/instances/{instance.pk}"


def test_a_deleted_topic_is_listed_until_it_is_restored(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    TopicAllowList.objects.create(instance=instance, topic=TOPIC, produce_ips=["10.0.0.0/8"])
    generation = Instance.objects.get(pk=instance.pk).generation
    assert api.delete(f"{at}/topics/{TOPIC}").status_code == 204
    assert (instance.pk, TOPIC) in data_plane.descriptions, "brokers keep it"
    assert_problem(api.get(f"{at}/topics/{TOPIC}"), 404, "not_found")
    (item,) = api.get(f"{at}/deleted-topics").json()["items"]
    row = DeletedTopic.objects.get()
    assert (item["name"], item["partitions"], item["topic_id"]) == (TOPIC, 3, f"id-of-{TOPIC}")
    assert row.expires_at - row.deleted_at == timedelta(days=settings.DELETED_TOPICS_KEPT_DAYS)
    assert_problem(api.post(f"{at}/topics", {"name": TOPIC}), 409, "recently_deleted")

    assert api.post(f"{at}/topics/{TOPIC}/restore").status_code == 204
    assert api.get(f"{at}/topics/{TOPIC}").status_code == 200
    assert api.get(f"{at}/deleted-topics").json()["items"] == []
    assert TopicAllowList.objects.get().produce_ips == ["10.0.0.0/8"]
    assert Instance.objects.get(pk=instance.pk).generation == generation + 2, "brokers are told each time"
    actions = list(AuditEntry.objects.filter(target_id=f"{instance.pk}/{TOPIC}").values_list("action", flat=True))
    assert sorted(actions) == ["topic.deleted", "topic.restored"]
    assert_problem(api.post(f"{at}/topics/{TOPIC}/restore"), 404, "not_found")


def test_a_topic_that_brokers_do_not_show_yet_has_a_state_until_they_do(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane, django_capture_on_commit_callbacks: Any
) -> None:
    hidden = data_plane.descriptions[instance.pk, TOPIC]
    with django_capture_on_commit_callbacks(execute=True):
        api.delete(f"{at}/topics/{TOPIC}")
        del data_plane.descriptions[instance.pk, TOPIC]
    with django_capture_on_commit_callbacks(execute=True):
        assert api.post(f"{at}/topics/{TOPIC}/restore").status_code == 204
    answer = api.get(f"{at}/topics/{TOPIC}")
    shown = answer.json()
    assert (shown["state"], shown["partitions"], shown["replication_factor"]) == ("being_restored", 3, None)
    assert "ETag" not in answer.headers
    (item,) = api.get(f"{at}/topics").json()["items"]
    assert (item["name"], item["state"], item["message_count"]) == (TOPIC, "being_restored", None)
    for refused in (
        api.patch(f"{at}/topics/{TOPIC}", {"partitions": 4}),
        api.delete(f"{at}/topics/{TOPIC}"),
        api.post(f"{at}/topics/{TOPIC}/clone", {"name": "copy"}),
        api.get(f"{at}/topics/{TOPIC}/producers"),
    ):
        assert_problem(refused, 409, "topic_not_ready")
        assert refused.headers["Retry-After"] == "1"
    assert_problem(Api.of(make_member()).get(f"{at}/topics/{TOPIC}"), 404, "not_found")

    data_plane.descriptions[instance.pk, TOPIC] = hidden
    assert api.get(f"{at}/topics/{TOPIC}").json()["state"] == "ready"
    table.invalidate(instance.pk)
    assert [row["state"] for row in api.get(f"{at}/topics").json()["items"]] == ["ready"]


def test_a_restored_topic_that_is_not_published_is_being_restored_whatever_the_cache_lost(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    api.delete(f"{at}/topics/{TOPIC}")
    api.post(f"{at}/topics/{TOPIC}/restore")
    del data_plane.descriptions[instance.pk, TOPIC]
    cache.clear()
    assert api.get(f"{at}/topics/{TOPIC}").json()["state"] == "being_restored"
    DeletedTopic.objects.all().delete()
    assert_problem(api.get(f"{at}/topics/{TOPIC}"), 404, "not_found")


def test_a_topic_that_was_just_created_is_shown_before_brokers_know_it(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        made = api.post(f"{at}/topics", {"name": "fresh", "partitions": 2})
    assert (made.status_code, made.json()["state"]) == (201, "ready"), "the broker that was asked knows it"
    del data_plane.descriptions[instance.pk, "fresh"]
    shown = api.get(f"{at}/topics/fresh").json()
    assert (shown["state"], shown["partitions"], shown["message_count"]) == ("being_created", 2, 0)
    assert api.get(f"{at}/topics").json()["totals"]["topics"] == 2
    kept = pending.pending_topics(instance, now_ms=pending.current_ms() + PENDING_TOPIC_SHOWN_S * 1_000 + 1)
    assert not kept, "what brokers do not show after that is not there"


def test_topics_being_created_are_kept_up_to_a_number(instance: Instance) -> None:
    for number in range(PENDING_TOPICS_KEPT_MAX + 5):
        pending.add(instance.pk, pending.PendingTopic(f"t{number}", "being_created", "", 1, 1, 10**15 + number))
    kept = pending.pending_topics(instance)
    assert (len(kept), "t4" in kept, "t5" in kept) == (PENDING_TOPICS_KEPT_MAX, False, True)


def test_a_topic_deleted_for_good_at_once_or_later_is_gone(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    assert api.delete(f"{at}/topics/{TOPIC}?for_good=true").status_code == 204
    assert not data_plane.descriptions
    assert not DeletedTopic.objects.exists()
    data_plane.add(instance.pk, TOPIC)
    api.delete(f"{at}/topics/{TOPIC}")
    assert api.delete(f"{at}/deleted-topics/{TOPIC}").status_code == 204
    assert not data_plane.descriptions
    assert AuditEntry.objects.filter(action="topic.deleted_for_good").count() == 1
    assert_problem(api.delete(f"{at}/deleted-topics/{TOPIC}"), 404, "not_found")
    assert api.post(f"{at}/topics", {"name": TOPIC}).status_code == 201


def test_where_brokers_do_not_say_whether_it_went_the_topic_can_be_asked_for_again(
    api: Api, at: str, data_plane: FakeDataPlane
) -> None:
    api.delete(f"{at}/topics/{TOPIC}")
    data_plane.is_lost = True
    assert_problem(api.delete(f"{at}/deleted-topics/{TOPIC}"), 503, "outcome_unknown")
    assert DeletedTopic.objects.count() == 1
    DeletedTopic.objects.update(expires_at=timezone.now())
    now = timezone.now()
    assert services.purge_expired_topics(now) == 0
    data_plane.is_lost = False
    assert services.purge_expired_topics(now) == 0
    assert services.purge_expired_topics(now + timedelta(seconds=PURGE_RETRIED_AFTER_S)) == 1


def test_topics_that_cannot_be_purged_keep_no_others_from_it(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    now = timezone.now()
    api.delete(f"{at}/topics/{TOPIC}")
    DeletedTopic.objects.update(expires_at=now - timedelta(minutes=1))
    silent = make_running(make_member().tenant)
    DeletedTopic.objects.bulk_create(
        DeletedTopic(
            instance=silent, topic=f"t{number}", topic_id=f"id-of-t{number}", partitions=1,
            deleted_at=now, expires_at=now - timedelta(minutes=2),
        )
        for number in range(PURGES_PER_ROUND_MAX)
    )  # fmt: skip
    data_plane.silent_instances.add(silent.pk)
    assert services.purge_expired_topics(now) == 0
    assert services.purge_expired_topics(now) == 1
    assert not DeletedTopic.objects.filter(instance=instance).exists()
    assert DeletedTopic.objects.count() == PURGES_PER_ROUND_MAX
    data_plane.silent_instances.clear()
    assert services.purge_expired_topics(now + timedelta(seconds=PURGE_RETRIED_AFTER_S)) == PURGES_PER_ROUND_MAX


def test_the_oldest_goes_beyond_the_limit_and_where_storage_is_needed(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    now = timezone.now()
    for number in range(DELETED_TOPICS_MAX):
        deleted_at = now - timedelta(minutes=DELETED_TOPICS_MAX - number)
        DeletedTopic.objects.create(
            instance=instance, topic=f"t{number:03}", topic_id=f"id-of-t{number:03}", partitions=1,
            deleted_at=deleted_at, expires_at=deleted_at + services.restore_period(),
        )  # fmt: skip
    api.delete(f"{at}/topics/{TOPIC}")
    assert services.purge_expired_topics(timezone.now()) == 1
    names = set(DeletedTopic.objects.values_list("topic", flat=True))
    assert (len(names), "t000" in names, TOPIC in names) == (DELETED_TOPICS_MAX, False, True)

    needed = instance.storage_bytes * DELETED_TOPICS_EXPIRE_FROM_PERCENT // 100
    storage_history.record_samples({instance.pk: needed - 1}, 1_000)
    assert services.purge_expired_topics(timezone.now()) == 0
    storage_history.record_samples({instance.pk: needed + 1}, 10_000_000)
    assert services.purge_expired_topics(timezone.now()) == 1
    assert not DeletedTopic.objects.filter(topic="t001").exists()
    assert services.purge_expired_topics(timezone.now()) == 0, "what went is in no sample yet"


def test_another_topic_of_the_name_is_neither_restored_over_nor_deleted(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    api.delete(f"{at}/topics/{TOPIC}")
    DeletedTopic.objects.update(topic_id="id-of-the-one-before")
    assert_problem(api.post(f"{at}/topics/{TOPIC}/restore"), 409, "already_exists")
    assert api.get(f"{at}/topics/{TOPIC}").status_code == 200
    assert api.delete(f"{at}/deleted-topics/{TOPIC}").status_code == 204
    assert (instance.pk, TOPIC) in data_plane.descriptions


def test_a_dry_run_changes_nothing(api: Api, at: str, data_plane: FakeDataPlane) -> None:
    assert api.delete(f"{at}/topics/{TOPIC}?dry_run=true").status_code == 204
    assert not DeletedTopic.objects.exists()
    api.delete(f"{at}/topics/{TOPIC}")
    assert api.post(f"{at}/topics/{TOPIC}/restore?dry_run=true").status_code == 204
    assert api.delete(f"{at}/deleted-topics/{TOPIC}?dry_run=true").status_code == 204
    assert DeletedTopic.objects.filter(is_restored=False).count() == 1
    assert data_plane.descriptions


def test_roles_without_the_permission_and_other_tenants_are_refused(
    api: Api, at: str, owner: Member, data_plane: FakeDataPlane
) -> None:
    api.delete(f"{at}/topics/{TOPIC}")
    viewer, stranger = Api.of(make_member(Role.VIEWER, owner.tenant)), Api.of(make_member())
    assert viewer.get(f"{at}/deleted-topics").status_code == 200
    for caller, status, code in ((viewer, 403, "permission_denied"), (stranger, 404, "not_found")):
        assert_problem(caller.post(f"{at}/topics/{TOPIC}/restore"), status, code)
        assert_problem(caller.delete(f"{at}/deleted-topics/{TOPIC}"), status, code)
    assert_problem(stranger.get(f"{at}/deleted-topics"), 404, "not_found")
    assert DeletedTopic.objects.filter(is_restored=False).count() == 1
