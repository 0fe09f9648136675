"""The search palette: pages, actions, instances, topics and groups of the tenant, a few of each, within a
time limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from instances import services
from instances.models import Instance
from instances.views import palette as of_instances
from tenants.actors import member_actor
from tenants.errors import Unavailable
from tenants.models import Member
from tenants.views.palette import ENTRIES_MAX
from tests.component.console.fakes import FakeDataPlane
from tests.testkit.fake_groups import FakeGroups

QUERIES_MAX = 15


def found(browser: Client, words: str, part: str = "places", instance: str = "") -> dict[str, str]:
    """Returns addresses by label."""
    return {entry["label"]: entry["url"] for entry in answer(browser, words, part, instance)["entries"]}


def answer(browser: Client, words: str, part: str = "places", instance: str = "") -> dict[str, Any]:
    sent = browser.get(reverse("page-palette"), {"q": words, "part": part, "instance": instance})
    assert sent.status_code == 200
    return dict(sent.json())


def test_pages_are_found(ida: Client, instance: Instance) -> None:
    assert found(ida, "audit") == {"Audit log": reverse("page-audit")}
    assert found(ida, "usage")["Usage & cost"] == reverse("page-account-usage")
    assert found(ida, "orders quot") == {"orders-prod: Quotas": reverse("page-quotas", args=[instance.pk])}


def test_acts_are_found(ida: Client, instance: Instance) -> None:
    assert found(ida, "create inst")["Create instance"] == reverse("page-instance-create")
    assert found(ida, "create topic") == {"orders-prod: Create topic": reverse("page-topic-create", args=[instance.pk])}
    assert found(ida, "resize orders")["orders-prod: Resize"] == reverse("page-instance-resize", args=[instance.pk])
    assert found(ida, "invite")["Invite a member"] == reverse("page-members")


def test_an_entry_that_begins_with_the_words_comes_first(ida: Client, instance: Instance) -> None:
    assert next(iter(found(ida, "settings"))) == "Settings"


@pytest.mark.parametrize("opened", [True, False])
def test_topics_and_groups_are_found_by_a_part_of_their_name(opened: bool, ida: Client, instance: Instance) -> None:
    here = instance.pk if opened else ""
    topic = reverse("page-topic", args=[instance.pk, "orders.created"])
    assert found(ida, "CREATED", "names", here) == {"orders.created": topic}
    group = reverse("page-group", args=[instance.pk]) + "?group=billing"
    assert found(ida, "bill", "names", here) == {"billing": group}
    assert found(ida, "bill orders-prod", "names", here) == {"billing": group}
    assert found(ida, "", "names", here) == {}


def test_another_tenants_things_are_not_found(
    instance: Instance, stranger: Member, browse: Callable[[Member], Client]
) -> None:
    eve = browse(stranger)
    for part in ("places", "names"):
        assert found(eve, "orders", part, instance.pk) == {}
        addresses = found(eve, "billing", part, instance.pk).values()
        assert not [address for address in addresses if instance.pk in address]
    assert found(eve, "billing", "names", instance.pk) == {}


def test_a_role_finds_what_it_may_open(
    instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client]
) -> None:
    viewer, finance = browse(join("viewer")), browse(join("finance"))
    assert found(viewer, "create") == {}
    assert found(viewer, "bill", "names") != {}
    assert found(finance, "bill", "names") == {}, "finance sees neither topics nor groups"


def test_many_instances_and_names_give_a_few_lines_and_a_few_queries(
    ida: Client, owner: Member, instance: Instance, data_plane: FakeDataPlane, groups: FakeGroups
) -> None:
    for number in range(40):
        services.create_instance(acting=member_actor(owner), name=f"orders-{number:02}", plan="brook")
    for number in range(300):
        data_plane.create_topic(
            instance.pk, f"many-{number:03}", partitions=1, replication_factor=1, config={}, validate_only=False
        )
        groups.add(instance.pk, f"many-{number:03}", {})
    for part in ("places", "names"):
        with CaptureQueriesContext(connection) as queries:
            lines = answer(ida, "orders" if part == "places" else "many", part, instance.pk)["entries"]
        assert 0 < len(lines) <= ENTRIES_MAX
        assert len(queries) <= QUERIES_MAX
    assert "orders-39" in found(ida, "orders-39")


def test_silent_brokers_leave_pages_and_instances(
    ida: Client, instance: Instance, groups: FakeGroups, data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object) -> None:
        raise Unavailable("No broker of the instance answers.")

    monkeypatch.setattr(FakeDataPlane, "topics", nobody)
    assert answer(ida, "bill", "names")["is_partial"] is True
    assert "billing" in found(ida, "bill", "names"), "what did answer is shown"
    groups.is_down = True
    assert answer(ida, "bill", "names") == {"entries": [], "is_partial": True}
    assert "orders-prod" in found(ida, "orders")


def test_brokers_are_asked_no_longer_than_the_deadline(
    ida: Client, instance: Instance, groups: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_instances, "NAMES_TIMEOUT_S", -1.0)
    assert answer(ida, "bill", "names") == {"entries": [], "is_partial": True}


def test_names_are_asked_for_once_while_somebody_types(
    ida: Client, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    topics = FakeDataPlane.topics
    monkeypatch.setattr(FakeDataPlane, "topics", lambda self, pk: asked.append(pk) or topics(self, pk))
    for words in ("o", "or", "ord"):
        assert "orders.created" in found(ida, words, "names")
    assert len(asked) == 1


@pytest.mark.parametrize("words", ["x" * 129, "\x00", "%", "'; --", "_" * 128])
def test_odd_words_find_nothing_and_break_nothing(words: str, ida: Client, instance: Instance) -> None:
    for part in ("places", "names", "everything"):
        answer(ida, words, part, "ins-nonsense")
