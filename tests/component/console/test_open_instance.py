"""Pages of an open instance: a notice and a button that closes it; rights for new users exist in a closed one only."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from instances.acls.interfaces import AclFilter
from instances.models import Instance
from tenants.models import Member
from tests.component.console.test_acts import text_of
from tests.testkit.fake_users import FakeAcls, FakeUsers

OPEN = "This instance is open."
SELECTED = re.compile(r'<option value="([a-z_]+)" selected>')


@pytest.fixture
def open_instance(instance: Instance, acls: FakeAcls) -> Instance:
    """An instance without rules, created before the setting existed."""
    acls.rules_by_instance.clear()
    instance.settings = {**instance.settings, "allow_everyone_if_no_acl": True}
    instance.save()
    return instance


def at(page: str, instance: Instance) -> str:
    return reverse(page, args=[instance.pk])


@pytest.mark.parametrize("page", ["page-instance", "page-acls"])
def test_an_open_instance_says_so_and_a_closed_one_does_not(
    ida: Client, instance: Instance, open_instance: Instance, page: str
) -> None:
    shown = text_of(ida.get(at(page, open_instance)))
    assert OPEN in shown and at("page-instance-close", open_instance) in shown
    open_instance.settings = {**open_instance.settings, "allow_everyone_if_no_acl": False}
    open_instance.save()
    assert OPEN not in text_of(ida.get(at(page, open_instance)))


def test_one_click_closes_it_and_clients_go_on(
    ida: Client, open_instance: Instance, acls: FakeAcls, reconciled: list[str]
) -> None:
    response = ida.post(at("page-instance-close", open_instance), follow=True)
    shown = text_of(response)
    assert "The instance is closed. Everybody may produce and consume" in shown and OPEN not in shown
    open_instance.refresh_from_db()
    assert open_instance.settings_in_force["allow_everyone_if_no_acl"] is False
    assert len(acls.rules(open_instance.pk, AclFilter(principal="User:*"))) == 5


def test_another_tenant_and_a_viewer_close_nothing(
    stranger: Member,
    open_instance: Instance,
    browse: Callable[[Member], Client],
    join: Callable[[str], Member],
    acls: FakeAcls,
) -> None:
    for member, status in ((stranger, 404), (join("viewer"), 403)):
        response = browse(member).post(at("page-instance-close", open_instance))
        assert response.status_code == status
    open_instance.refresh_from_db()
    assert open_instance.settings_in_force["allow_everyone_if_no_acl"] is True
    assert not acls.rules_by_instance


def test_opening_an_instance_warns(ida: Client, instance: Instance, reconciled: list[str]) -> None:
    settings = at("page-instance-settings", instance)
    for checked, is_warned in (({}, False), ({"allow_everyone_if_no_acl": "on"}, True)):
        shown = text_of(ida.post(settings, {"part": "access", **checked}, follow=True))
        assert ("The instance is open now" in shown) is is_warned


def test_the_form_of_a_new_user_has_its_rights_selected(
    ida: Client, instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    acls.rules_by_instance.clear()
    assert SELECTED.findall(text_of(ida.get(at("page-users", instance))))[0] == "produce_consume"
    response = ida.post(at("page-users", instance), {"name": "app", "rights": "produce_consume"})
    assert response.status_code == 200
    assert len(acls.rules(instance.pk, AclFilter(principal="User:app"))) == 5
    assert not users.users_by_key[instance.pk, "app"].superuser


def test_an_instance_without_a_user_offers_to_make_the_first_one(
    ida: Client, instance: Instance, users: FakeUsers
) -> None:
    make_user = at("page-users", instance) + "#add"
    assert make_user not in text_of(ida.get(at("page-instance", instance)))
    users.users_by_key.clear()
    assert make_user in text_of(ida.get(at("page-instance", instance)))
    users.is_down = True
    assert make_user not in text_of(ida.get(at("page-instance", instance))), "nobody knows whether there is one"


def test_in_an_open_instance_rights_on_every_topic_are_not_offered(
    ida: Client, open_instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    """Rules on every topic would lock out all users without rules."""
    shown = text_of(ida.get(at("page-users", open_instance)))
    assert SELECTED.findall(shown)[0] == "nothing" and "produce_consume" not in shown
    response = ida.post(at("page-users", open_instance), {"name": "app", "rights": "produce_consume"})
    assert response.status_code == 422
    assert (open_instance.pk, "app") not in users.users_by_key and not acls.rules_by_instance
