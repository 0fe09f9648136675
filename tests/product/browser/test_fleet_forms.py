"""Forms of hosts and clusters for operators, in both themes and languages, and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from brokers.models import Cluster, Host
from brokers.monitoring import cluster_overview, observe
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_operator_pictures import signed_in
from tests.testkit.depth import THEMES
from tests.testkit.fleet import make_fleet

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PHONE = 390


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> Iterator[Cluster]:
    """A cluster of unresponsive brokers."""
    monkeypatch.setattr(
        cluster_overview, "_query_brokers", lambda _cluster: observe.BrokerAnswers(bodies={}, silent=())
    )
    yield make_fleet(tmp_path, name="eu-1")


def fits(page: Page, width: int) -> bool:
    page.set_viewport_size({"width": width, "height": 800})
    return bool(page.evaluate("document.querySelector('.fleet').scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize("theme", THEMES)
def test_a_host_and_a_cluster_on_it_are_added_by_forms(
    theme: str,
    live_server: LiveServer,
    cluster: Cluster,
    open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:
    page = open_page(theme=theme)
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/brokers/host/")
    page.locator("a[href$='/brokers/host/add/']").first.click()
    page.get_by_label("Name").fill("Kafka 2")
    page.get_by_label("Advertised address").fill("127.0.0.2")
    page.get_by_role("button", name="Add host").click()
    expect(page.get_by_text("Small letters, digits and - in between")).to_be_visible()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-host-add-{theme}-1280")
    page.get_by_label("Name").fill("kafka-2")
    page.get_by_label("Zone").fill("east")
    page.get_by_label("First tenant port").fill("26000")
    page.get_by_label("Last tenant port").fill("26099")
    page.get_by_role("button", name="Add host").click()
    expect(page.get_by_text("manage.py agent --host kafka-2")).to_be_visible()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-host-{theme}-1280")
    assert fits(page, PHONE)
    picture(page, f"operator-host-{theme}-390")
    page.get_by_role("link", name="To the host").click()
    wrong = [{"path": f"/srv/{'disk' * 12}", "reason": "Read-only file system"}]
    Host.objects.filter(name="kafka-2").update(
        checked_at=timezone.now(),
        checks=[
            {"name": "clock", "state": "failed", "data": {"offset_ms": 5_400}},
            {"name": "directories", "state": "failed", "data": {"count": 1, "wrong": wrong}},
        ],
    )
    expect(page.get_by_text("5,400 ms ahead of the database's clock")).to_be_visible()
    assert objections(page, within=".fleet") == []
    assert page.locator(".checks").evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    picture(page, f"operator-host-checks-{theme}-390")
    page.set_viewport_size({"width": 1280, "height": 800})

    page.goto(f"{live_server.url}/operator/brokers/cluster/")
    page.locator("a[href$='/brokers/cluster/add/']").first.click()
    page.get_by_role("textbox", name="Name", exact=True).fill("second")
    page.get_by_label("Kind").select_option("dedicated")
    page.get_by_label("kafka-2").check()
    page.get_by_label("Brokers on each of them").fill("3")
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-cluster-add-{theme}-1280")
    assert fits(page, PHONE)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Form cluster").click()
    expect(page.get_by_text("1 on kafka-2, 2 on kafka-2, 3 on kafka-2")).to_be_visible()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-cluster-forming-{theme}-1280")
    made = Cluster.objects.get(name="second")
    assert set(made.brokers.values_list("host", flat=True)) == {Host.objects.get(name="kafka-2").pk}
    page.get_by_role("link", name="Retire").click()
    picture(page, f"operator-cluster-retire-{theme}-1280")
    page.get_by_role("button", name="Retire cluster").click()
    expect(page.locator(".fleet").get_by_text("Being retired")).to_be_visible()


def test_the_pages_of_a_host_are_chinese_for_those_who_read_it(
    live_server: LiveServer, cluster: Cluster, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(locale="zh-CN")
    signed_in(page, live_server)
    host = Host.objects.get()
    page.goto(f"{live_server.url}/operator/brokers/host/{host.pk}/change/")
    expect(page.get_by_text("尚无代理")).to_be_visible()
    picture(page, "operator-host-zh-1280")
    page.goto(f"{live_server.url}/operator/brokers/cluster/add/")
    expect(page.get_by_role("button", name="组建集群")).to_be_visible()
    picture(page, "operator-cluster-add-zh-1280")
