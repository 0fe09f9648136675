"""GET /instances/{id}/storage and /storage/topics."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from instances.interfaces import BrokerUnresponsive
from instances.limits import STORAGE_SAMPLE_EVERY_S, STORAGE_SAMPLES_MAX
from instances.metrics import storage_history
from instances.models import Instance
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_data_plane import FakeObservation
from tests.testkit.fleet import make_instance, make_running

pytestmark = pytest.mark.django_db
EVERY_MS = STORAGE_SAMPLE_EVERY_S * 1_000


@pytest.fixture(autouse=True)
def no_samples() -> None:
    cache.clear()


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant, name="orders", storage_gb=20)


def test_storage_is_the_sum_over_topics_with_replicas(
    api: Api, instance: Instance, observation: FakeObservation
) -> None:
    observation.sizes = {"orders": (1_000, 5), "events": (3_000_000_000, 5)}
    observation.stored_by_topic = {"orders": 3_000, "events": 9_000_000_000}

    shown = api.get(f"/instances/{instance.pk}/storage").json()
    topics = api.get(f"/instances/{instance.pk}/storage/topics").json()["items"]

    assert (shown["bought_bytes"], shown["used_bytes"]) == (20_000_000_000, 9_000_003_000)
    assert (shown["used_percent"], shown["when_full"], shown["silent"]) == (45.0, "stop", [])
    assert shown["forecast"] == {"state": "unknown", "full_in_s": None, "bytes_per_hour": None}
    assert [(item["name"], item["leader_bytes"], item["stored_bytes"]) for item in topics] == [
        ("events", 3_000_000_000, 9_000_000_000),
        ("orders", 1_000, 3_000),
    ]
    assert sum(item["stored_bytes"] for item in topics) == shown["used_bytes"]


def test_topics_come_in_pages_and_by_part_of_their_name(
    api: Api, instance: Instance, observation: FakeObservation
) -> None:
    observation.sizes = {f"orders-{number}": (number, 1) for number in range(5)} | {"events": (1, 1)}
    at = f"/instances/{instance.pk}/storage/topics?contains=ORD&page_size=2"
    names: list[str] = []
    token = ""
    while token is not None:
        page = api.get(f"{at}&page_token={token}" if token else at).json()
        names += [item["name"] for item in page["items"]]
        token = page["next_page_token"]

    assert names == [f"orders-{number}" for number in range(5)]


def test_samples_make_a_forecast(api: Api, instance: Instance, observation: FakeObservation) -> None:
    observation.sizes = {"orders": (10_000_000_000, 5)}
    for number in range(40):
        storage_history.record_samples({instance.pk: 6_000_000_000 + 100_000_000 * number}, number * EVERY_MS)

    forecast = api.get(f"/instances/{instance.pk}/storage").json()["forecast"]

    assert forecast == {
        "state": "filling",
        "full_in_s": 10_000_000_000 // 100_000_000 * STORAGE_SAMPLE_EVERY_S,
        "bytes_per_hour": 100_000_000 * 3_600 // STORAGE_SAMPLE_EVERY_S,
    }


def test_two_workers_that_sample_at_once_keep_one_sample() -> None:
    assert storage_history.record_samples({"ins-aaaaaaaa": 1}, EVERY_MS) == 1
    assert storage_history.record_samples({"ins-aaaaaaaa": 1}, EVERY_MS + 50) == 0
    assert len(storage_history.samples_of("ins-aaaaaaaa")) == 1


def test_samples_are_bounded() -> None:
    for number in range(STORAGE_SAMPLES_MAX + 10):
        storage_history.record_samples({"ins-aaaaaaaa": number}, number * EVERY_MS)

    samples = storage_history.samples_of("ins-aaaaaaaa")
    assert len(samples) <= STORAGE_SAMPLES_MAX
    assert samples[-1][1] == STORAGE_SAMPLES_MAX + 9


@pytest.mark.parametrize("path", ["storage", "storage/topics"])
def test_storage_of_another_tenant_is_not_found(path: str, api: Api) -> None:
    foreign = make_running(make_member().tenant, name="theirs")
    assert_problem(api.get(f"/instances/{foreign.pk}/{path}"), 404, "not_found")


@pytest.mark.parametrize("path", ["storage", "storage/topics"])
def test_storage_without_brokers_says_so(path: str, api: Api, owner: Member, observation: FakeObservation) -> None:
    made = make_instance(owner.tenant, name="being-made")
    assert_problem(api.get(f"/instances/{made.pk}/{path}"), 409, "instance_not_reachable")
    running = make_running(owner.tenant, name="silent")
    observation.silent = (BrokerUnresponsive(broker_id=1, reason="does not answer"),)
    assert api.get(f"/instances/{running.pk}/{path}").status_code == 503
