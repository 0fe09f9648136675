"""Screenshots of the operator's pages of a cluster, in both themes; readable and accessible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from brokers.choices import ProcessState
from brokers.contract.usage import USAGE_TOPIC
from brokers.models import Broker, Cluster
from brokers.monitoring import cluster_overview, observe
from brokers.operations import job_runner, rolling_restart
from brokers.rebalancing import executor, services
from brokers.transactions import hanging
from instances import interfaces
from tenants.actors import system_actor
from tenants.models import User
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.testkit.depth import THEMES
from tests.testkit.fake_cluster import FakeCluster, confirm_generations, create_instance_on, mark_lost
from tests.testkit.fake_transactions import FakeClusterTransactions
from tests.testkit.fleet import make_fleet, plugged

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PASSWORD = "a long enough passphrase"
WIDTHS = (1280, 768, 360)


def share(number: int, **more: Any) -> dict[str, Any]:
    known = {"live": True, "stopping": False, "leaders": 12, "preferred": 12, "replicas": 31, "out_of_sync": 0}
    return {"id": number, **known, **more}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> Iterator[Cluster]:
    """Four brokers: 2 is behind, 3 is being drained, 4 does not answer."""
    fleet = make_fleet(tmp_path, brokers=4, name="eu-2")
    now = timezone.now() + timedelta(hours=1)  # however slow the machine, the answers are fresh
    fleet.brokers.filter(number__lt=4).update(process_state=ProcessState.RUNNING, observed_at=now)
    for number, taken in ((1, 410), (2, 845), (3, 120)):
        status = {"log_bytes": taken * 10**9, "epoch": 40 + number, "is_controller": number == 1}
        fleet.brokers.filter(number=number).update(observed=status, rack="ab"[number % 2])
    counts = dict.fromkeys(cluster_overview.COUNTS, 0) | {
        "topics": 40,
        "partitions": 1_204,
        "under_replicated": 14,
        "moving": 5,
    }
    body = {"broker_id": 1, "ready": True, "controller_id": 1, "controller_epoch": 3, **counts}
    body["brokers"] = [share(1), share(2, leaders=0, out_of_sync=14), share(3, replicas=9), share(4, live=False)]
    silent = (interfaces.BrokerUnresponsive(broker_id=4, reason="does not answer"),)
    monkeypatch.setattr(
        cluster_overview, "_query_brokers", lambda _cluster: observe.BrokerAnswers(bodies={1: body}, silent=silent)
    )
    following = "ins-00000000.orders.created/49"
    monkeypatch.setattr(
        cluster_overview,
        "partition_page",
        lambda *_args, after="", **_more: (lines(), "" if after == following else following),
    )
    monkeypatch.setattr(hanging, "ClusterTransactions", lambda _cluster: hanging_ones())
    with plugged(interfaces.reconcile, lambda _instance_id: None):
        yield fleet


def hanging_ones() -> FakeClusterTransactions:
    """A transaction past its time-out, one that waits for a marker, and one unknown to all coordinators."""
    now_ms = time.time_ns() // 1_000_000
    result, orders = FakeClusterTransactions(), "ins-00000000.orders.created"
    result.add("ins-00000000.settlement-7", (orders, 0), (orders, 3), producer_id=4_711, started_ms=now_ms - 3_600_000)
    result.add("ins-00000000.mirror", (orders, 1), producer_id=12, started_ms=now_ms - 700_000, state="PrepareCommit")
    result.write((orders, 1), producer_id=88, at_ms=now_ms - 2 * 86_400_000, first_offset=1_204_118)
    return result


def lines() -> list[dict[str, Any]]:
    topic = "ins-00000000.orders.created"
    known = {"topic": topic, "instance_id": "ins-00000000", "leader_epoch": 3, "adding": [], "removing": []}
    first = {**known, "partition": 0, "leader": 1, "replicas": [1, 2, 3], "isr": [1, 3], "adding": [3], "removing": [2]}
    return [first, {**known, "partition": 1, "leader": -1, "replicas": [2], "isr": [2]}]


@pytest.fixture
def admin_clients(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """The partitions of one instance on brokers 1 to 3."""
    instance = create_instance_on(cluster, 1, 2, 3)
    admin_client = FakeCluster(brokers={1, 2, 3, 4})
    admin_client.add(f"{instance.pk}.orders.created", *((1 + i % 3, 1 + (i + 1) % 3) for i in range(60)))
    admin_client.add(USAGE_TOPIC, (1,), (2,), (3,), (4,))
    for module in (executor, services):
        monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: admin_client)
    return admin_client


@pytest.fixture
def draining(cluster: Cluster, admin_clients: FakeCluster) -> str:
    """A drain of broker 3 with some completed moves; returns its id."""
    broker = Broker.objects.get(cluster=cluster, number=3)
    acting = system_actor("ida@penstock.example")
    row = services.plan_drain(acting=acting, broker=broker)
    services.start(acting=acting, rebalance=row)
    for _ in range(4):
        job_runner.reconcile_once()
        confirm_generations()
        admin_clients.catch_up(3)
    job_runner.reconcile_once()
    return str(row.pk)


def signed_in(page: Page, live_server: LiveServer) -> None:
    User.objects.create_superuser("ops@example.com", PASSWORD)
    page.goto(f"{live_server.url}/operator/login/")
    page.fill("input[name=username]", "ops@example.com")
    page.fill("input[name=password]", PASSWORD)
    page.locator("button[type=submit]").click()
    page.wait_for_url(f"{live_server.url}/operator/")


@pytest.mark.parametrize("theme", THEMES)
def test_the_operators_pages_are_drawn_whole(
    theme: str,
    live_server: LiveServer,
    cluster: Cluster,
    draining: str,
    open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:
    page = open_page(theme=theme)
    signed_in(page, live_server)
    root = f"{live_server.url}/operator/brokers"
    pages = {
        "cluster": f"{root}/cluster/{cluster.pk}/map/",
        "partitions": f"{root}/cluster/{cluster.pk}/partitions/?state=under_replicated",
        "broker-add": f"{root}/cluster/{cluster.pk}/add-broker/",
        "transactions": f"{root}/cluster/{cluster.pk}/transactions/?look=",
        "rebalance": f"{root}/rebalance/{draining}/change/",
        "rebalances": f"{root}/rebalance/",
    }
    for name, address in pages.items():
        page.goto(address)
        if name != "rebalances":
            expect(page.locator(".fleet .title")).to_be_visible()
            assert objections(page, within=".fleet") == [], name
        picture(page, f"operator-{name}-{theme}-1280")
    page.goto(pages["cluster"])
    expect(page.locator(".card")).to_have_count(4)
    expect(page.locator(".card.leaving")).to_contain_text("Draining")
    expect(page.locator(".card.look").first).to_contain_text("14")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.querySelector('.fleet').scrollWidth <= document.documentElement.clientWidth")
    picture(page, f"operator-cluster-{theme}-360")


@pytest.mark.parametrize("theme", THEMES)
def test_the_first_page_says_what_needs_a_person(
    theme: str, live_server: LiveServer, cluster: Cluster, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    cluster_overview.shared_cache.set(
        cluster_overview._image_key(cluster), (timezone.now(), cluster_overview._query_brokers(cluster)), 60
    )
    now = timezone.now() + timedelta(hours=1)
    Broker.objects.filter(cluster=cluster, number=4).update(process_state=ProcessState.BACKING_OFF)
    full = [{"path": "/data", "offline_reason": None, "total_bytes": 1_000, "usable_bytes": 100}]
    status = {"log_bytes": 0, "log_directories": full, "transactions_overdue": 2}
    Broker.objects.filter(cluster=cluster, number=1).update(observed=status, observed_at=now)
    page = open_page(theme=theme)
    signed_in(page, live_server)
    expect(page.get_by_text("Broker 4 of eu-2 is down.")).to_be_visible()
    expect(page.get_by_text("A disk of broker 1 of eu-2 is 90 % full.")).to_be_visible()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-first-{theme}-1280")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.querySelector('.fleet').scrollWidth <= document.documentElement.clientWidth")
    picture(page, f"operator-first-{theme}-360")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("link", name="Abort them").click()
    page.wait_for_url("**/transactions/")


@pytest.mark.parametrize("theme", THEMES)
def test_a_broker_that_was_just_lost_is_checked(
    theme: str, live_server: LiveServer, cluster: Cluster, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    Broker.objects.filter(cluster=cluster, number=2).update(process_state=ProcessState.BACKING_OFF)
    page = open_page(theme=theme)
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/brokers/cluster/{cluster.pk}/map/")
    expect(page.get_by_text("A broker was lost.")).to_be_visible()
    expect(page.get_by_text("at risk")).to_have_count(0)
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-checking-{theme}-1280")


@pytest.mark.parametrize("theme", THEMES)
def test_a_rolling_restart_is_confirmed_stands_on_the_map_and_is_cancelled_there(
    theme: str, live_server: LiveServer, cluster: Cluster, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(theme=theme)
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/brokers/cluster/{cluster.pk}/map/")
    page.get_by_role("link", name="Restart all in turn").click()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-restart-{theme}-1280")
    page.get_by_role("button", name="Restart them in turn").click()
    expect(page.get_by_text("Now: broker 2.")).to_be_visible()
    picture(page, f"operator-rolling-{theme}-1280")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Now: broker 2.")).to_have_count(0)
    assert rolling_restart.RollingRestart.objects.get().state == "cancelled"


def test_a_pace_that_is_being_typed_survives_what_comes_meanwhile(
    live_server: LiveServer, cluster: Cluster, draining: str, open_page: OpenPage
) -> None:
    page = open_page()
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/brokers/rebalance/{draining}/change/")
    field = page.get_by_label("Each broker copies at most")
    field.press_sequentially("25")
    for _ in range(2):
        with page.expect_response(lambda answer: f"/rebalance/{draining}/" in answer.url, timeout=60_000):
            pass
    expect(field).to_have_value("25")
    expect(field).to_be_focused()
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_text("Each broker copies at most 25 MB/s for this.")).to_be_visible()


@pytest.mark.parametrize("theme", THEMES)
def test_the_consequences_of_a_lost_broker_are_shown_before_it_is_given_up(
    theme: str,
    live_server: LiveServer,
    cluster: Cluster,
    admin_clients: FakeCluster,
    open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:
    owner = next(topic for topic, _ in admin_clients.replicas).partition(".")[0]
    admin_clients.add(f"{owner}.payments.settled.by-day", *((4,) for _ in range(12)))
    admin_clients.add(f"{owner}.audit", (4, 1), (1, 2))
    admin_clients.isr[f"{owner}.audit", 0] = (4,)
    mark_lost(admin_clients, cluster, 4)
    page = open_page(theme=theme)
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/brokers/cluster/{cluster.pk}/map/")
    page.get_by_role("button", name="Plan to remove as lost").click()
    expect(page.get_by_role("heading", name="What is lost")).to_be_visible()
    assert objections(page, within=".fleet") == []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        picture(page, f"operator-loss-{theme}-{width}")
        assert page.evaluate("document.querySelector('.fleet').scrollWidth <= document.documentElement.clientWidth")
    page.set_viewport_size({"width": 1280, "height": 800})
    picture(page, f"operator-loss-{theme}-1280")
    page.get_by_label("Type its number:").fill("4")
    page.get_by_role("button", name="Remove broker 4 and give up what is lost").click()
    expect(page.locator(".fleet .title")).to_contain_text("Running")
    assert Broker.objects.get(cluster=cluster, number=4).given_up_at is not None
    page.get_by_role("link", name="Abandon").click()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-abandon-{theme}-1280")
    page.get_by_role("button", name="Abandon it").click()
    expect(page.locator(".fleet .title")).to_contain_text("Being abandoned")
    job_runner.reconcile_once()
    page.goto(f"{live_server.url}/operator/brokers/cluster/{cluster.pk}/map/")
    picture(page, f"operator-stopped-{theme}-1280")
    page.get_by_role("button", name="Start the broker").click()
    expect(page.get_by_text("Broker 4 is being started.")).to_be_visible()
