"""Topic of the code snippets: the one viewed last, else the newest."""

from __future__ import annotations

from collections.abc import Callable

from django.test import Client
from django.urls import reverse

from instances import services
from instances.models import Instance
from instances.views.last_viewed_topic import INSTANCES_MAX, KEY
from instances.views.snippets import topic_for
from tenants.actors import member_actor
from tenants.models import Member
from tests.component.console.fakes import FakeDataPlane


def topic_of(browser: Client, instance: Instance) -> str:
    python = browser.get(reverse("page-instance", args=[instance.pk])).context["snippets"][0].code
    return str(python.partition('producer.produce("')[2].partition('"')[0])


def create(owner: Member, instance: Instance, *names: str) -> None:
    for name in names:
        services.create_topic(acting=member_actor(owner), instance=instance, name=name, partitions=1)


def test_it_is_the_one_looked_at(ida: Client, owner: Member, instance: Instance) -> None:
    create(owner, instance, "aaa", "payments", "zebra")
    ida.get(reverse("page-topic-config", args=[instance.pk, "payments"]))
    assert topic_of(ida, instance) == "payments"


def test_without_a_look_it_is_the_newest(ida: Client, owner: Member, instance: Instance) -> None:
    create(owner, instance, "zebra", "aaa", "middle")
    assert topic_of(ida, instance) == "middle"


def test_a_deleted_topic_is_not_used(ida: Client, owner: Member, instance: Instance, data_plane: FakeDataPlane) -> None:
    create(owner, instance, "first", "second", "third")
    ida.get(reverse("page-topic", args=[instance.pk, "first"]))
    for name in ("first", "third"):
        data_plane.delete_topic(instance.pk, name)
    assert topic_of(ida, instance) == "second"


def test_looks_of_one_person_are_not_anothers(
    ida: Client, owner: Member, instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client]
) -> None:
    create(owner, instance, "payments", "newest")
    ida.get(reverse("page-topic", args=[instance.pk, "payments"]))
    assert topic_of(browse(join("developer")), instance) == "newest"


def test_topics_last_viewed_are_kept_for_few_instances(ida: Client, instance: Instance) -> None:
    session = ida.session
    session[KEY] = {f"ins-{number:08}": "t" for number in range(INSTANCES_MAX)}
    session.save()
    ida.get(reverse("page-topic", args=[instance.pk, "orders.created"]))
    kept = ida.session[KEY]
    assert (len(kept), kept[instance.pk], "ins-00000000" in kept) == (INSTANCES_MAX, "orders.created", False)


def test_topics_that_clients_made_come_last_by_name() -> None:
    assert topic_for({"b", "c"}, last_viewed="gone", created=["gone"]) == "b"
    assert topic_for({"b", "c"}, last_viewed="", created=["x", "c"]) == "c"
    assert topic_for(set(), last_viewed="a", created=["a"]) is None
