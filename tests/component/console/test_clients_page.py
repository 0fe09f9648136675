"""The page of connected clients: hostile names, empty states, and the confirmation before a connection is closed."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

from django.test import Client
from django.urls import reverse

from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.models import AuditEntry, Member
from tests.testkit.fake_connections import FakeConnections

HOSTILE = "<script>alert(1)</script>\"'&"


def place(instance: Instance) -> str:
    return reverse("page-clients", args=[instance.pk])


def close(instance: Instance, connection_id: str) -> str:
    return reverse("page-client-close", args=[instance.pk, connection_id])


def shown(client: Client, at: str, status: int = 200) -> str:
    response = client.get(at)
    assert response.status_code == status
    return response.content.decode()


def test_clients_are_shown_with_software_and_hostile_names_stay_text(
    ida: Client, instance: Instance, connections: FakeConnections
) -> None:
    connections.add(instance.pk, HOSTILE, user=HOSTILE)
    connections.add(instance.pk, "", user="", software="", is_signing_in=True)
    page = shown(ida, place(instance))
    assert "librdkafka" in page
    assert "signing in" in page
    assert "<script>alert" not in page
    assert HOSTILE in unescape(page)


def test_empty_states_say_why_and_what_next(ida: Client, instance: Instance, connections: FakeConnections) -> None:
    assert "No client is connected" in shown(ida, place(instance))
    connections.add(instance.pk, "etl")
    assert "No client matches “nobody”" in shown(ida, f"{place(instance)}?q=nobody&sort=user")
    connections.connections_by_instance.clear()
    connections.silent = (BrokerUnresponsive(broker_id=1, reason="does not answer"),)
    from django.core.cache import cache

    cache.clear()
    assert "No broker of the instance answers at the moment" in shown(ida, place(instance))


def test_wrong_words_in_the_address_show_the_first_page(
    ida: Client, instance: Instance, connections: FakeConnections
) -> None:
    connections.add(instance.pk, "etl")
    assert "etl" in shown(ida, f"{place(instance)}?sort=colour")
    assert ida.get(f"{place(instance)}?page_token=forged").status_code == 400


def test_closing_asks_first_and_says_that_clients_come_back(
    ida: Client, instance: Instance, connections: FakeConnections
) -> None:
    connection = connections.add(instance.pk, "etl")
    page = shown(ida, close(instance, connection.id))
    assert "Close the connection of etl?" in page
    assert "connects again by itself" in page
    assert len(connections.connections_by_instance[instance.pk]) == 1
    done = ida.post(close(instance, connection.id), follow=True).content.decode()
    assert "The connection of etl is closed." in done
    assert connections.connections_by_instance[instance.pk] == []
    assert AuditEntry.objects.filter(action="connection.closed").count() == 1
    again = ida.post(close(instance, connection.id), follow=True).content.decode()
    assert "not there any more" in again


def test_viewers_see_and_do_not_close_and_strangers_find_nothing(
    stranger: Member, join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance,
    connections: FakeConnections,
) -> None:  # fmt: skip
    connection = connections.add(instance.pk, "etl")
    viewer = browse(join("viewer"))
    page = shown(viewer, place(instance))
    assert "etl" in page
    assert close(instance, connection.id) not in page
    assert viewer.post(close(instance, connection.id)).status_code == 403
    assert browse(stranger).get(place(instance)).status_code == 404
    assert browse(stranger).post(close(instance, connection.id)).status_code == 404
    assert Client(enforce_csrf_checks=True).post(close(instance, connection.id)).status_code == 403
    assert len(connections.connections_by_instance[instance.pk]) == 1
