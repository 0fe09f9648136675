"""The operator's first page: state of each cluster, and action items with links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import resolve, reverse
from django.utils import timezone

from brokers.admin_views import overview
from brokers.choices import ProcessState, RebalanceKind, RebalanceState
from brokers.limits import HOST_LATE_S, NEEDS_MAX, OPERATION_LATE_S
from brokers.models import Broker, Cluster, Host, Rebalance, RollingRestart
from brokers.monitoring import cluster_overview, observe
from instances.choices import Reason
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance, Operation
from tests.testkit.api_cases import make_tenant, make_user
from tests.testkit.fake_cluster import four_brokers
from tests.testkit.fleet import make_fleet, make_instance, place

SIZE = {"plan": "brook", "bandwidth_mb_s": 5, "storage_gb": 20, "is_suspended": False}
pytestmark = pytest.mark.django_db

NOTHING = "Nothing needs you."


@pytest.fixture()
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A healthy cluster. A query of its brokers for this page fails the test."""
    now = timezone.now()
    with four_brokers(tmp_path) as result:
        result.brokers.update(observed_at=now, observed={"log_bytes": 0})
        Host.objects.update(agent_seen_at=now)
        tell(result)
        monkeypatch.setattr(observe, "get", lambda *_args: pytest.fail("the page asked a broker"))
        yield result


def tell(cluster: Cluster, *, silent: tuple[int, ...] = (), dead: tuple[int, ...] = (), **counts: int) -> None:
    """Caches the cluster overview in the way of the beat task."""
    share = {"stopping": False, "leaders": 1, "preferred": 1, "replicas": 1, "out_of_sync": 0}
    body: dict[str, Any] = dict.fromkeys(cluster_overview.COUNTS, 0) | {
        "broker_id": 1, "ready": True, "controller_id": 1, "controller_epoch": 1,
        "brokers": [{"id": number, "live": number not in dead, **share} for number in (1, 2, 3, 4)], **counts,
    }  # fmt: skip
    answers = observe.BrokerAnswers(
        bodies={1: body}, silent=tuple(BrokerUnresponsive(broker_id=item, reason="does not answer") for item in silent)
    )
    cluster_overview.shared_cache.set(cluster_overview._image_key(cluster), (timezone.now(), answers), 60)


def first_page(panel: Client) -> str:
    answer = panel.get(reverse("admin:index"))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_cluster_where_all_is_well_needs_nobody(panel: Client, cluster: Cluster) -> None:
    page = first_page(panel)
    assert NOTHING in page and "Healthy" in page
    assert reverse("admin:brokers_cluster_map", args=[cluster.pk]) in page
    assert "0 / 4,000 MB/s" in page


def test_the_overview_is_in_chinese_as_well(panel: Client, cluster: Cluster) -> None:
    cluster.brokers.filter(number=3).update(process_state=ProcessState.BACKING_OFF)
    page = panel.get(reverse("admin:index"), headers={"accept-language": "zh-hans"}).content.decode()
    assert f"集群 {cluster.name} 的 Broker 3 已停机。" in page


def _brokers(cluster: Cluster, **changes: Any) -> None:
    cluster.brokers.filter(number=3).update(**changes)


def _ago(seconds: int) -> Any:
    return timezone.now() - timedelta(seconds=seconds)


def _observed(**status: Any) -> Callable[[Cluster], None]:
    return lambda cluster: _brokers(cluster, observed={"log_bytes": 0, **status})


def _full(percent: int) -> list[dict[str, Any]]:
    return [{"path": "/d", "offline_reason": None, "total_bytes": 1_000, "usable_bytes": 1_000 - percent * 10}]


def _sell(cluster: Cluster) -> None:
    place(make_instance(make_tenant(), bandwidth_mb_s=3_700, storage_gb=1), cluster)


def _fail(_cluster: Cluster) -> None:
    made = make_instance(make_tenant(), name="orders", phase="failed", reason=Reason.NO_ROOM.value)
    assert made.name == "orders"


def _stall(_cluster: Cluster) -> None:
    made = make_instance(make_tenant(), name="orders")
    Operation.objects.create(
        tenant=made.tenant, instance=made, type="instance.resize", generation=2, **SIZE, asked_by="x",
        created_at=_ago(OPERATION_LATE_S + 60),
    )  # fmt: skip


def _rebalance(**more: Any) -> Callable[[Cluster], None]:
    def make(cluster: Cluster) -> None:
        broker = cluster.brokers.get(number=3)
        Rebalance.objects.create(cluster=cluster, kind=RebalanceKind.DRAIN, broker=broker, planned_by="x", **more)

    return make


@pytest.mark.parametrize(
    ("happens", "sentence", "where"),
    [
        (lambda one: _brokers(one, observed_at=_ago(60)), "Broker 3 of {name} does not answer.", "/map/"),
        (lambda one: _brokers(one, process_state=ProcessState.BACKING_OFF), "Broker 3 of {name} is down.", "/broker/"),
        (
            _observed(log_directories=[{"path": "/d", "offline_reason": "I/O error"}]),
            "A disk of broker 3 of {name} is offline.",
            "/broker/",
        ),
        (_observed(log_directories=_full(90)), "A disk of broker 3 of {name} is 90 % full.", "/broker/"),
        (_observed(log_bytes=870 * 10**9), "Logs of broker 3 of {name} take 87 % of the storage", "/map/"),
        (_observed(unopened_listeners=2), "cannot open ports of instances: 2.", "/broker/"),
        (_observed(transactions_overdue=1), "Hanging transactions of {name}: 1.", "/transactions/"),
        (lambda one: tell(one, offline=4), "Partitions of {name} without a leader: 4.", "/partitions/?state=offline"),
        (
            lambda one: tell(one, under_min_isr=2),
            "Partitions of {name} that refuse acks=all: 2.",
            "?state=under_min_isr",
        ),
        (_sell, "{name} has sold 3,700 of 4,000 MB/s.", "/add-broker/"),
        (lambda _: Host.objects.update(agent_seen_at=_ago(HOST_LATE_S + 9)), "was last seen at", "/brokers/host/"),
        (lambda _: Host.objects.update(agent_seen_at=None), "No agent was ever seen on host", "/brokers/host/"),
        (_fail, "Creating orders of", "/instances/instance/"),
        (_stall, "orders is not done after 4 min.", "/instances/operation/"),
        (
            _rebalance(state=RebalanceState.RUNNING, trouble="ZooKeeper does not answer."),
            "Empty broker 3 ({name}) waits: ZooKeeper does not answer.",
            "/rebalance/",
        ),
        (_rebalance(state=RebalanceState.PAUSED), "Empty broker 3 ({name}) is paused.", "/rebalance/"),
        (
            lambda one: RollingRestart.objects.create(cluster=one, state="paused", numbers=[1], asked_by="x"),
            "Rolling restart ({name}) is paused.",
            "/map/",
        ),
    ],
)
def test_each_need_for_a_person_is_one_sentence_with_a_link_to_the_act(
    happens: Callable[[Cluster], None], sentence: str, where: str, panel: Client, cluster: Cluster
) -> None:
    assert NOTHING in first_page(panel)
    happens(cluster)
    page = first_page(panel)
    assert NOTHING not in page
    (line,) = [part for part in page.split("<li>")[1:] if sentence.format(name=cluster.name) in part]
    link = line.partition('href="')[2].partition('"')[0]
    assert where in link
    assert resolve(link.partition("?")[0])


def test_while_a_loss_is_being_checked_nothing_is_said_of_partitions(panel: Client, cluster: Cluster) -> None:
    tell(cluster, silent=(3,), offline=2, undecided=2, dead=(3,))
    page = first_page(panel)
    assert "Checking" in page and "without a leader:" not in page


def test_an_image_that_is_old_says_how_old(panel: Client, cluster: Cluster) -> None:
    at, answers = cluster_overview.shared_cache.get(cluster_overview._image_key(cluster))
    cluster_overview.shared_cache.set(cluster_overview._image_key(cluster), (at - timedelta(seconds=40), answers), 60)
    assert "as of" in first_page(panel)
    cluster_overview.shared_cache.delete(cluster_overview._image_key(cluster))
    assert "Not known" in first_page(panel)


def test_the_beat_task_keeps_the_image_for_the_page(tmp_path: Path, panel: Client) -> None:
    fleet = make_fleet(tmp_path, brokers=1)
    cluster_overview.cache_images(timezone.now())
    at, answers = cluster_overview.cached_images([fleet])[fleet.pk]
    assert timezone.now() - at < timedelta(minutes=1)
    assert [item.broker_id for item in answers.silent] == [1]


def test_many_things_are_bounded_and_cost_no_more_queries(
    panel: Client, cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    first_page(panel)
    cluster.brokers.update(process_state=ProcessState.BACKING_OFF)
    tenant = make_tenant()
    for number in range(NEEDS_MAX):
        made = make_instance(tenant, name=f"failed-{number}", phase="failed")
        Operation.objects.create(
            tenant=tenant,
            instance=made,
            type="instance.resize",
            generation=2,
            **SIZE,
            asked_by="x",
            created_at=_ago(4_000),
        )
    with django_assert_max_num_queries(24):
        page = first_page(panel)
    assert 10 < page.count("<li>") <= NEEDS_MAX + 200
    assert page.count("Creating failed-") == 10


def test_a_cluster_in_need_is_shown_before_others_where_not_all_are(
    panel: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cluster.objects.create(name="a-quiet-one")
    monkeypatch.setattr(overview, "OVERVIEW_CLUSTERS_MAX", 1)
    assert "a-quiet-one" in first_page(panel)
    cluster.brokers.filter(number=3).update(process_state=ProcessState.BACKING_OFF)
    page = first_page(panel)
    assert "a-quiet-one" not in page
    assert f"Broker 3 of {cluster.name} is down." in page
    assert "And 1 more." in page


def test_a_silent_agent_is_seen_among_many_that_run(panel: Client, cluster: Cluster) -> None:
    host = Host.objects.get(brokers__cluster=cluster, brokers__number=1)
    for number in range(NEEDS_MAX):
        other = Host.objects.create(name=f"a-{number}", port_first=1, port_last=2, agent_seen_at=timezone.now())
        Broker.objects.create(
            cluster=cluster, host=other, number=100 + number, internal_port=1, admin_port=2, data_dirs=[],
            observed_at=timezone.now(), observed={"log_bytes": 0},
        )  # fmt: skip
    host.name, host.agent_seen_at = "z-last", _ago(HOST_LATE_S + 9)
    host.save()
    assert "The agent of host z-last was last seen at" in first_page(panel)


def test_staff_that_may_not_see_clusters_learn_nothing_of_them(cluster: Cluster) -> None:
    looker, client = make_user(is_staff=True), Client()
    client.force_login(looker)
    page = first_page(client)
    assert cluster.name not in page and "You may not see clusters." in page
    looker.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    _fail(cluster)
    page = first_page(client)
    assert cluster.name in page and "Creating orders" not in page
    assert Instance.objects.exists() and Broker.objects.exists()
