"""What a tenant reads of brokers that do not serve: a badge and a sentence, on the list and on the instance's page."""

from __future__ import annotations

import html

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances import services
from instances.lifecycle.conditions import Leaderless
from instances.models import Instance
from tenants.actors import system_actor
from tests.component.console.fakes import FakeObservation

PART = {"HX-Request": "true"}


def read(ida: Client, address: str) -> str:
    return html.unescape(ida.get(address, headers=PART).content.decode())


def note(instance: Instance, *, silent: set[int] | None = None, leaderless: Leaderless | None = None) -> None:
    services.note_health(instance.pk, silent=silent or set(), leaderless=leaderless, now=timezone.now())


def test_a_silent_broker_and_what_to_do_stand_on_the_list_and_the_page(ida: Client, instance: Instance) -> None:
    note(instance, silent={2})
    for address in (reverse("page-instances"), reverse("page-why", args=[instance.pk])):
        page = read(ida, address)
        assert "Broker silent" in page
        assert "Broker 2 of your 3 does not answer" in page
        assert "The operators see it too." in page
    note(instance)
    assert "does not answer" not in read(ida, reverse("page-instances"))


def test_partitions_without_a_leader_are_named(ida: Client, instance: Instance) -> None:
    note(instance, leaderless=Leaderless(count=7, names=("orders.created/0", "orders.created/1")))
    page = read(ida, reverse("page-why", args=[instance.pk]))
    assert "7 partitions have no leader: orders.created/0, orders.created/1 …" in page
    assert "No leader" in page


@pytest.mark.usefixtures("observation")
def test_others_are_told_nothing(stranger: object, browse: object, instance: Instance) -> None:
    note(instance, silent={2})
    eve: Client = browse(stranger)  # type: ignore[operator]
    assert "does not answer" not in read(eve, reverse("page-instances"))
    assert eve.get(reverse("page-why", args=[instance.pk])).status_code == 404


def test_what_is_suspended_needs_somebody_and_says_why(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    services.suspend_instance(acting=system_actor("tests"), instance=instance, note="Write to us.")
    page = read(ida, reverse("page-instances"))
    assert "Suspended: Suspended by the operator" in page
    assert "Write to us." in page
    assert "All well" not in page


def test_an_instance_that_is_well_needs_nobody(ida: Client, instance: Instance) -> None:
    page = read(ida, reverse("page-instances"))
    assert "All well" in page
    assert 'class="note warn need"' not in page
