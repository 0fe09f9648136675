"""Recently deleted topics in the console."""

from __future__ import annotations

from collections.abc import Callable

from django.test import Client
from django.urls import reverse

from instances.models import DeletedTopic, Instance
from tenants.models import Member

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
    assert ida.get(at("page-topic", instance, TOPIC)).status_code == 404
    answer = ida.post(at("page-topic-restore", instance, TOPIC), follow=True).content.decode()
    assert "is restored" in answer
    assert "Recently deleted" not in answer
    assert ida.get(at("page-topic", instance, TOPIC)).status_code == 200


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
