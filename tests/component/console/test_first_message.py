"""The next step of a fresh instance: one button, a password shown once, code, and a link to the messages."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from instances import interfaces
from instances.models import Instance
from tests.component.console.fakes import FakeObservation
from tests.testkit.fleet import plugged

BUTTON = "Create topic, user and sample data"


@pytest.fixture
def fresh(instance: Instance, observation: FakeObservation) -> Instance:
    observation.data_plane.found.clear()
    return instance


def page_of(client: Client, instance: Instance) -> str:
    return html.unescape(client.get(reverse("page-instance", args=[instance.pk])).content.decode())


def test_the_next_step_comes_first_and_then_code_and_traffic(ida: Client, fresh: Instance) -> None:
    page = page_of(ida, fresh)
    assert page.index(BUTTON) < page.index('id="connect"') < page.index('id="h-traffic"')
    assert page.count('id="connect"') == 1


def test_an_instance_in_use_shows_traffic_first(ida: Client, instance: Instance) -> None:
    page = page_of(ida, instance)
    assert BUTTON not in page
    assert page.index('id="h-traffic"') < page.index('id="connect"')


def test_a_member_who_may_not_send_it_has_no_button(fresh: Instance, join: Any, browse: Any) -> None:
    viewer = browse(join("viewer"))
    assert BUTTON not in page_of(viewer, fresh)
    assert viewer.post(reverse("page-quickstart", args=[fresh.pk])).status_code == 403


def test_the_button_shows_the_password_once_with_code_and_the_way_to_the_messages(ida: Client, fresh: Instance) -> None:
    with plugged(interfaces.stream_samples, lambda *_run: None):
        answer = ida.post(reverse("page-quickstart", args=[fresh.pk]))
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    password = answer.context["password"]
    assert page.count(password) >= 8
    assert "Topic orders is created." in page
    assert reverse("page-topic", args=[fresh.pk, "orders"]) in page
    assert password not in page_of(ida, fresh)


def test_a_stranger_does_not_find_it(fresh: Instance, stranger: Any, browse: Any) -> None:
    assert browse(stranger).post(reverse("page-quickstart", args=[fresh.pk])).status_code == 404
