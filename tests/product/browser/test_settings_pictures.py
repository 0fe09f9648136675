"""The operator's page of broker settings on real brokers, in both themes: readable, accessible, fit for a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from brokers.dataplane import admin_client
from brokers.models import Cluster
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_operator_pictures import WIDTHS, signed_in
from tests.testkit.depth import THEMES
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_fleet

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def cluster(
    zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory, transactional_db: None
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("settings-pictures")
    with EngineCluster(zookeeper_address, directory, size=2) as engines:
        fleet = make_fleet(directory, brokers=2, name="eu-2")
        Path(fleet.control_secret_file).write_text(engines.secret)
        for broker in engines.brokers:
            row = fleet.brokers.get(number=broker.settings.broker_id)
            row.internal_port, row.admin_port = broker.settings.internal_port, broker.settings.admin_port
            row.save()
            row.host.__class__.objects.filter(pk=row.host_id).update(internal_host="127.0.0.1")
        yield fleet
        admin_client.links().close()


@pytest.mark.parametrize("theme", THEMES)
def test_a_setting_is_found_and_changed_on_its_page(
    theme: str, live_server: LiveServer, cluster: Cluster, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(theme=theme)
    signed_in(page, live_server)
    page.goto(f"{live_server.url}/operator/brokers/cluster/{cluster.pk}/map/")
    page.get_by_role("link", name="Settings", exact=True).click()
    expect(page.get_by_text("Number of logs that are cleaned concurrently.")).to_be_visible()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-settings-{theme}-1280")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.querySelector('.fleet').scrollWidth <= document.documentElement.clientWidth")
    picture(page, f"operator-settings-{theme}-360")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("link", name="Broker 2", exact=True).click()
    page.get_by_role("row", name="log.cleaner.threads").get_by_role("link", name="Change").click()
    expect(page.get_by_text("Of broker 2.")).to_be_visible()
    assert objections(page, within=".fleet") == []
    picture(page, f"operator-setting-{theme}-1280")
    page.get_by_label("Value").fill("many")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Not a value of type INT")).to_be_visible()
    page.get_by_label("Value").fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
