"""Live parts of a page during an operation: its end is shown without a reload."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from instances import services
from instances.models import Instance
from tenants.actors import member_actor
from tenants.models import Member
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import log_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_the_end_of_a_resize_changes_the_state_in_the_head(
    live_server: LiveServer, instance: Instance, owner: Member, open_page: OpenPage
) -> None:
    operation = services.resize_instance(acting=member_actor(owner), instance=instance, bandwidth_mb_s=40)
    assert operation is not None
    page = open_page()
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{instance.pk}/")
    expect(page.locator("#phase .pill.updating")).to_be_visible()
    Instance.objects.filter(pk=instance.pk).update(phase="running")
    operation.state, operation.finished_at = "succeeded", timezone.now()
    operation.save()
    expect(page.locator("#phase .pill.running")).to_be_visible()
