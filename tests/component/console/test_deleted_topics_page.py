"""Recently deleted topics in the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.test import Client
from django.urls import reverse

from instances.models import DeletedTopic, Instance
from instances.topics import table
from tenants.models import Member
from tests.component.console.fakes import FakeDataPlane

TOPIC = "orders.created"


def at(page: str, instance: Instance, *names: str) -> str:
    return reverse(page, args=[instance.pk, *names])


def text(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def delete(client: Client, instance: Instance, **fields: str) -> None:
    page = at("page-topic-delete", instance, TOPIC)
    assert client.post(page, {"typed": TOPIC, **fields}).status_code == 302


def test_a_deleted_topic_stands_below_the_list_and_is_restored_by_a_click(ida: Client, instance: Instance) -> None:
    page = at("page-topics", instance)
    assert "Recently deleted" not in text(ida, page)
    assert "For 7 days it can be restored" in text(ida, at("page-topic-delete", instance, TOPIC))
    delete(ida, instance)
    shown = text(ida, page)
    assert "It can be restored" in shown
    assert shown.count(f'aria-label="Restore {TOPIC}"') == 1
    absent = ida.get(at("page-topic", instance, TOPIC))
    assert absent.status_code == 404
    assert at("page-topic-restore", instance, TOPIC) in absent.content.decode()
    answer = ida.post(at("page-topic-restore", instance, TOPIC), follow=True).content.decode()
    assert "is restored" in answer
    assert "Recently deleted" not in answer
    assert ida.get(at("page-topic", instance, TOPIC)).status_code == 200


def test_a_topic_that_brokers_do_not_show_yet_says_so_and_its_page_comes_by_itself(
    ida: Client,
    instance: Instance,
    data_plane: FakeDataPlane,
    browse: Callable[[Member], Client],
    stranger: Member,
    django_capture_on_commit_callbacks: Any,
) -> None:
    hidden = data_plane.found[instance.pk, TOPIC]
    with django_capture_on_commit_callbacks(execute=True):
        delete(ida, instance)
    del data_plane.found[instance.pk, TOPIC]
    with django_capture_on_commit_callbacks(execute=True):
        ida.post(at("page-topic-restore", instance, TOPIC))
    part = at("page-topic-waiting", instance, TOPIC)
    for page in ("page-topic", "page-topic-config", "page-topic-partitions", "page-topic-delete"):
        answer = ida.get(at(page, instance, TOPIC))
        assert (answer.status_code, "being restored" in answer.content.decode()) == (200, True)
    assert part in answer.content.decode()
    listed = text(ida, at("page-topics", instance))
    assert TOPIC in listed
    assert "being restored" in listed
    posted = ida.post(at("page-topic-delete", instance, TOPIC), {"typed": TOPIC}).content.decode()
    assert "Nothing was changed." in posted
    assert ida.get(part).status_code == 204
    assert browse(stranger).get(part).status_code == 404

    data_plane.found[instance.pk, TOPIC] = hidden
    assert ida.get(part).headers["HX-Refresh"] == "true"
    table.invalidate(instance.pk)
    assert "being restored" not in text(ida, at("page-topics", instance))


def test_its_end_is_asked_about_and_a_box_deletes_for_good_at_once(ida: Client, instance: Instance) -> None:
    delete(ida, instance)
    address = at("page-topic-delete-for-good", instance, TOPIC)
    assert "Nothing brings them back" in ida.post(address).content.decode()
    assert DeletedTopic.objects.exists()
    assert "deleted for good" in ida.post(address, {"confirmed": "yes"}, follow=True).content.decode()
    assert not DeletedTopic.objects.exists()
    assert "There is no deleted topic" in ida.post(address, {"confirmed": "yes"}, follow=True).content.decode()


def test_a_topic_deleted_for_good_is_not_among_the_recently_deleted(ida: Client, instance: Instance) -> None:
    delete(ida, instance, for_good="on")
    assert not DeletedTopic.objects.exists()


def test_viewers_see_no_buttons_and_strangers_nothing(
    ida: Client, instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client], stranger: Member
) -> None:
    delete(ida, instance)
    viewer = browse(join("viewer"))
    shown = text(viewer, at("page-topics", instance))
    assert "Recently deleted" in shown
    assert "Restore" not in shown
    for page in ("page-topic-restore", "page-topic-delete-for-good"):
        assert viewer.post(at(page, instance, TOPIC), {"confirmed": "yes"}).status_code == 403
        assert browse(stranger).post(at(page, instance, TOPIC), {"confirmed": "yes"}).status_code == 404
    assert DeletedTopic.objects.exists()
