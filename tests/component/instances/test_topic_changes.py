"""Changes of a topic: atomic, serialized, and only of the version that was read."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from types import MethodType
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from brokers.provisioning import sweep
from instances import interfaces, services
from instances.models import DeletedTopic, Instance, TopicAllowList
from instances.services import common
from instances.services import topics as topic_services
from instances.topics.allow_lists import AllowLists
from tenants.actors import member_actor
from tenants.errors import Conflict, DomainError, NotFound, QuotaExceeded, Unavailable
from tenants.models import AuditEntry, Member
from tenants.slow_queries import is_query_cancelled
from tests.testkit.api_cases import Api, assert_problem, make_member, make_token, owner_of
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.instances import make_instance
from tests.testkit.waiting import eventually

TOO_MANY = 900


class Refusing(FakeDataPlane):
    """A data plane that refuses 900 partitions, as beyond a plan, and counts the requests."""

    def grow_topic(self, instance_id: str, name: str, partitions: int, *, validate_only: bool) -> None:
        if partitions >= TOO_MANY:
            raise QuotaExceeded("The plan has fewer partitions.")
        super().grow_topic(instance_id, name, partitions, validate_only=validate_only)


@pytest.fixture
def refusing(data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch) -> FakeDataPlane:
    plane = Refusing()
    monkeypatch.setattr(interfaces.data_plane, "_plugged", plane)
    return plane


@pytest.fixture
def owner(db: None) -> Member:
    return make_member()


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_instance(owner.tenant)


@pytest.mark.parametrize("reason", [NotFound(), Unavailable("No broker of the instance answers.")])
def test_a_topic_is_made_though_no_broker_shows_it_yet(
    reason: DomainError, owner: Member, instance: Instance, data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creating broker waits for its own image only, and another one may be queried next."""

    def late(*_: object) -> None:
        raise reason

    monkeypatch.setattr(FakeDataPlane, "topic", late)
    answer = Api.of(owner).post(f"/instances/{instance.pk}/topics", {"name": "orders", "partitions": 2})
    assert answer.status_code == 201, answer.content
    assert (answer.json()["name"], answer.json()["partitions"]) == ("orders", 2)
    assert AuditEntry.objects.filter(action="topic.created", target_id=f"{instance.pk}/orders").exists()


@pytest.mark.parametrize(
    "wrong",
    [{"partitions": TOO_MANY}, {"partitions": 1}, {"allow_list": {"produce": ["10.0.0.1", "nowhere"]}}],
)
def test_a_change_that_is_refused_in_one_part_changes_nothing(
    wrong: dict[str, Any], owner: Member, instance: Instance, refusing: FakeDataPlane
) -> None:
    refusing.add(instance.pk, "orders")
    api, at = Api.of(owner), f"/instances/{instance.pk}/topics/orders"
    before = api.get(at).json()
    answer = api.patch(at, {"config": {"retention.ms": "1000"}, "allow_list": {"consume": ["10.0.0.9"]}} | wrong)
    assert answer.status_code in (400, 403)
    assert api.get(at).json() == before
    assert not AuditEntry.objects.filter(action__in=("topic.changed", "allow_list.changed")).exists()


def test_a_wrong_address_is_named_by_its_place_in_the_body(
    owner: Member, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.add(instance.pk, "orders")
    wrong = {"allow_list": {"consume": ["10.0.0.1", "x"]}}
    problem = assert_problem(Api.of(owner).patch(f"/instances/{instance.pk}/topics/orders", wrong), 400)
    assert [error["pointer"] for error in problem["errors"]] == ["/allow_list/consume/1"]


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_changes_of_the_same_version_is_carried_out(
    data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = make_member()
    instance, token = make_instance(owner.tenant), make_token(owner)
    data_plane.add(instance.pk, "orders")
    at = f"/instances/{instance.pk}/topics/orders"
    etag = Api(token).get(at)["ETag"]
    both_have_read = threading.Barrier(2)
    alter = FakeDataPlane.alter_topic_config

    def slowly(self: FakeDataPlane, *args: Any, **options: Any) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_read.wait(0.5)  # both get here only where nobody waits for the other
        alter(self, *args, **options)

    monkeypatch.setattr(FakeDataPlane, "alter_topic_config", slowly)
    statuses: list[int] = []

    def change(value: str) -> None:
        try:
            statuses.append(Api(token).patch(at, {"config": {"retention.ms": value}}, If_Match=etag).status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=change, args=(value,)) for value in ("1000", "2000")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(statuses) == [200, 412]


@pytest.mark.django_db(transaction=True)
def test_a_long_wait_for_a_topic_ends_with_a_retry_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "DATA_PLANE_LOCK_WAIT_MS", 50)
    instance = make_instance(make_member().tenant)
    message: list[Conflict] = []

    def wait() -> None:
        try:
            with pytest.raises(Conflict) as refusal, transaction.atomic():
                services.lock_topic(instance, "orders")
            message.append(refusal.value)
        finally:
            connection.close()

    with transaction.atomic():
        services.lock_topic(instance, "orders")
        services.lock_topic(instance, "orders")  # nobody waits for themselves
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(20)
    assert [(item.code, item.retry_after_s) for item in message] == [("already_in_progress", 1)]


@pytest.mark.django_db(transaction=True)
def test_a_query_given_up_while_it_waits_for_a_topic_is_no_change_under_way() -> None:
    instance = make_instance(make_member().tenant)
    errors: list[OperationalError] = []

    def wait() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 50")
                services.lock_topic(instance, "orders")
        except OperationalError as error:
            errors.append(error)
        finally:
            connection.close()

    with transaction.atomic():
        services.lock_topic(instance, "orders")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(wait).result(20)
    assert [is_query_cancelled(error) for error in errors] == [True]


def test_address_lists_are_published_though_the_task_for_it_is_lost(
    owner: Member, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.add(instance.pk, "orders")
    at = f"/instances/{instance.pk}/topics/orders"
    Instance.objects.filter(pk=instance.pk).update(generation=1, observed_generation=1)
    assert instance.pk not in sweep.incomplete_instance_ids(timezone.now())
    assert Api.of(owner).patch(at, {"allow_list": {"produce": ["10.0.0.1"]}}).status_code == 200
    assert instance.pk in sweep.incomplete_instance_ids(timezone.now())
    Instance.objects.filter(pk=instance.pk).update(observed_generation=2)
    assert Api.of(owner).delete(at).status_code == 204  # its lists are deleted too, which is published
    assert instance.pk in sweep.incomplete_instance_ids(timezone.now())


def test_address_lists_that_stay_as_they_are_are_not_published_again(
    owner: Member, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.add(instance.pk, "orders")
    for _ in range(2):
        answer = Api.of(owner).patch(
            f"/instances/{instance.pk}/topics/orders", {"allow_list": {"produce": ["10.0.0.1"]}}
        )
        assert answer.status_code == 200
    assert Instance.objects.get(pk=instance.pk).generation == instance.generation + 1


def test_allow_lists_per_instance_are_limited_and_existing_ones_can_be_changed(
    owner: Member, instance: Instance, data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_services, "ALLOW_LISTS_PER_INSTANCE_MAX", 2)
    api = Api.of(owner)

    def restrict(name: str) -> Any:
        return api.patch(f"/instances/{instance.pk}/topics/{name}", {"allow_list": {"produce": ["10.0.0.1"]}})

    for name in ("one", "two", "three"):
        data_plane.create_topic(instance.pk, name, partitions=1, replication_factor=1, config={}, validate_only=False)
    assert [restrict(name).status_code for name in ("one", "two", "one")] == [200] * 3
    assert_problem(restrict("three"), 403, "quota_exceeded")
    assert set(TopicAllowList.objects.values_list("topic", flat=True)) == {"one", "two"}


def test_allow_lists_of_an_instance_are_limited_in_bytes_and_can_always_be_shortened(
    owner: Member, instance: Instance, data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_services, "ALLOW_LIST_BYTES_MAX", 1_000)
    api = Api.of(owner)

    def restrict(name: str, count: int) -> Any:
        addresses = [f"10.0.0.{number}" for number in range(100, 100 + count)]
        return api.patch(f"/instances/{instance.pk}/topics/{name}", {"allow_list": {"produce": addresses}})

    for name in ("one", "two"):
        data_plane.create_topic(instance.pk, name, partitions=1, replication_factor=1, config={}, validate_only=False)
    assert [restrict("one", 10).status_code, restrict("two", 4).status_code] == [200, 200]
    assert_problem(restrict("two", 20), 403, "quota_exceeded")
    monkeypatch.setattr(topic_services, "ALLOW_LIST_BYTES_MAX", 100)
    assert restrict("one", 1).status_code == 200


def is_row_free(instance: Instance) -> bool:
    """True if another transaction could lock the instance's row now, as the reconciler does."""

    def lock() -> bool:
        try:
            with transaction.atomic():
                Instance.objects.select_for_update(nowait=True, no_key=True).get(pk=instance.pk)
        except OperationalError:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lock).result()


class Watching(FakeDataPlane):
    """A data plane that looks at each call whether the instance's row is locked."""

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        self._instance = instance
        self.calls: list[tuple[str, bool]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not isinstance(found, MethodType) or name == "add":
            return found

        def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, is_row_free(self._instance)))
            return found(*args, **options)

        return call


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("delete", "topics/orders", None),
        ("delete", "topics/orders?for_good=true", None),
        ("delete", "deleted-topics/gone", None),
        ("post", "topics/gone/restore", {}),
        ("patch", "topics/orders", {"allow_list": {"produce": ["10.0.0.1"]}}),
        ("patch", "topics/orders", {"allow_list": {"produce": ["10.0.0.1"]}, "config": {"retention.ms": "1000"}}),
        ("patch", "topics/orders", {"allow_list": {"produce": ["10.0.0.1"]}, "partitions": 9}),
        ("delete", "", None),
    ],
)
def test_the_row_of_an_instance_is_free_while_brokers_are_queried(
    method: str, path: str, body: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = make_instance(make_member().tenant)
    now = timezone.now()
    Instance.objects.filter(pk=instance.pk).update(first_running_at=now)
    plane = Watching(instance)
    plane.add(instance.pk, "orders")
    for name in ("orders", "gone"):
        TopicAllowList.objects.create(instance=instance, topic=name, consume_ips=["10.0.0.0/8"])
    DeletedTopic.objects.create(
        instance=instance, topic="gone", topic_id="id-of-gone", partitions=1, deleted_at=now, expires_at=now
    )
    if not path:
        DeletedTopic.objects.all().delete()
    monkeypatch.setattr(interfaces.data_plane, "_plugged", plane)
    api = Api.of(owner_of(instance.tenant))
    call, address = getattr(api, method), f"/instances/{instance.pk}/{path}".rstrip("/")
    answer = call(address) if body is None else call(address, body)
    assert answer.status_code in (200, 202, 204), answer.content
    assert plane.calls
    assert all(is_free for _, is_free in plane.calls), plane.calls


@pytest.mark.django_db(transaction=True)
def test_allow_lists_of_two_topics_that_change_at_once_stay_within_the_limit_together(
    data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_services, "ALLOW_LIST_BYTES_MAX", 1_000)
    instance = make_instance(make_member().tenant)
    acting = member_actor(owner_of(instance.tenant))
    addresses = [f"10.0.0.{number}" for number in range(100, 140)]
    for name in ("one", "two"):
        data_plane.add(instance.pk, name)
    refused: list[str] = []

    def restrict(topic: str) -> None:
        services.set_allow_list(acting=acting, instance=instance, topic=topic, lists=AllowLists(addresses, [], []))

    def second() -> None:
        try:
            restrict("two")
        except DomainError as error:
            refused.append(error.code)
        finally:
            connection.close()

    thread = threading.Thread(target=second)
    with transaction.atomic():
        restrict("one")
        thread.start()
        eventually(is_something_waiting, what="the second change to wait for a lock")
    thread.join(20)
    assert refused == ["quota_exceeded"]
    assert list(TopicAllowList.objects.values_list("topic", flat=True)) == ["one"]


def is_something_waiting() -> bool:
    """True if a transaction waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])
