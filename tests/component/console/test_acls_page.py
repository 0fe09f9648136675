"""The page of access rules: rules by resource, presets, single rules, undo of a deletion, and the permission test."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance
from tenants.models import Member
from tests.component.console.test_acts import text_of
from tests.testkit.fake_users import FakeAcls, FakeUsers, rule


@pytest.fixture
def at(instance: Instance) -> str:
    return reverse("page-acls", args=[instance.pk])


READING = {
    "part": "access", "user": "etl", "task": "read", "pattern": "literal", "topic": "orders", "group": "etl-*",
}  # fmt: skip


def test_rules_are_said_in_words_by_resource(ida: Client, at: str, instance: Instance, acls: FakeAcls) -> None:
    acls.create(instance.pk, [
        rule("User:*", "all", resource_name="*", permission="deny", host="10.0.0.9"),
        rule(resource_type="group", resource_name="etl-", pattern_type="prefixed"),
        rule(resource_type="cluster", resource_name="kafka-cluster", operation="create"),
    ])  # fmt: skip
    shown = text_of(ida.get(at))
    for words in ("Topic: every one", "Consumer group: names that begin with etl-", "Whole instance", "everybody",
                  "may not", "10.0.0.9", "any address"):  # fmt: skip
        assert words in shown


def test_giving_access_makes_the_rules_it_takes(ida: Client, at: str, instance: Instance, acls: FakeAcls) -> None:
    acls.rules_by_instance.clear()
    shown = ida.post(at, READING, follow=True)
    assert "2 access rules are in force" in text_of(shown)
    assert acls.rules_by_instance[instance.pk] == {
        rule("User:etl"), rule("User:etl", resource_type="group", resource_name="etl-", pattern_type="prefixed"),
    }  # fmt: skip
    assert "in force already" in text_of(ida.post(at, READING, follow=True))


def test_a_missing_value_is_reported_beside_its_field(ida: Client, at: str) -> None:
    response = ida.post(at, {**READING, "group": ""})
    assert response.status_code == 422
    assert re.search(r'<input[^>]*name="group"[^>]*aria-invalid="true"', text_of(response))


def test_one_rule_is_added_and_a_wrong_address_is_said_beside_its_field(
    ida: Client, at: str, instance: Instance, acls: FakeAcls
) -> None:
    values = {
        "part": "rule", "user": "*", "permission": "deny", "operation": "delete", "resource_type": "topic",
        "pattern": "every",
    }  # fmt: skip
    response = ida.post(at, {**values, "host": "10.0.0.0/8"})
    assert response.status_code == 422
    assert "Use one IP address" in text_of(response)
    assert "<details open>" in text_of(response)
    assert ida.post(at, {**values, "host": "10.0.0.1"}).status_code == 302
    assert (
        rule("User:*", "delete", resource_name="*", host="10.0.0.1", permission="deny")
        in acls.rules_by_instance[instance.pk]
    )


def test_a_deleted_rule_comes_back_by_undo(ida: Client, at: str, instance: Instance, acls: FakeAcls) -> None:
    (present,) = acls.rules_by_instance[instance.pk]
    shown = text_of(ida.post(reverse("page-acl-delete", args=[instance.pk]), asdict(present), follow=True))
    assert not acls.rules_by_instance[instance.pk]
    assert "No access rule" in shown
    back = re.search(r'class="undo".*?action="([^"]+)"', shown, re.DOTALL)
    assert back is not None
    assert ida.post(back[1].replace("&amp;", "&")).status_code == 302
    assert acls.rules_by_instance[instance.pk] == {present}


def test_a_rule_that_is_gone_is_said(ida: Client, instance: Instance, acls: FakeAcls) -> None:
    response = ida.post(reverse("page-acl-delete", args=[instance.pk]), asdict(rule("User:gone")), follow=True)
    assert "no such resource" in text_of(response)
    assert "There is no such rule" in text_of(
        ida.post(reverse("page-acl-delete", args=[instance.pk]), {"principal": "User:a"}, follow=True)
    )


@pytest.mark.parametrize(
    ("user", "topic", "words"),
    [
        ("billing", "orders.created", "This rule allows it"),
        ("etl", "orders.created", "none allows this"),
        ("etl", "other", "There is no rule about it, and then nobody may"),
    ],
)
def test_access_is_tested_and_the_reason_said(ida: Client, at: str, user: str, topic: str, words: str) -> None:
    question = {"ask": "1", "user": user, "operation": "read", "resource_type": "topic", "resource_name": topic}
    assert words in text_of(ida.get(at, question))


def test_full_access_is_said_as_the_reason(ida: Client, at: str, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "root", superuser=True)
    question = {"ask": "1", "user": "root", "operation": "alter", "resource_type": "cluster"}
    assert "full access" in text_of(ida.get(at, question))


def test_rules_of_one_user_are_shown_alone(ida: Client, at: str, instance: Instance, acls: FakeAcls) -> None:
    acls.create(instance.pk, [rule("User:etl", resource_name="clicks")])
    shown = text_of(ida.get(at, {"user": "etl"}))
    assert "Topic clicks" in shown
    assert "Topic orders.created" not in shown


def test_access_without_rules_is_shown_and_set(ida: Client, at: str, instance: Instance, reconciled: list[str]) -> None:
    settings = reverse("page-instance-settings", args=[instance.pk])
    assert "nothing is allowed" in text_of(ida.get(at))
    for checked, words in (({"allow_everyone_if_no_acl": "on"}, "open to every user"), ({}, "nothing is allowed")):
        assert ida.post(settings, {"part": "access", **checked}).status_code == 302
        instance.refresh_from_db()
        assert instance.settings_in_force["allow_everyone_if_no_acl"] is bool(checked)
        assert words in text_of(ida.get(at))


def test_each_form_of_the_page_has_ids_of_its_own(ida: Client, at: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', text_of(ida.get(at)))
    assert len(ids) == len(set(ids))


def test_many_resources_come_in_pages(ida: Client, at: str, instance: Instance, acls: FakeAcls) -> None:
    acls.create(instance.pk, [rule(resource_name=f"t{number:03}") for number in range(60)])
    shown = text_of(ida.get(at))
    link = re.search(r'href="(\?user=&amp;page_token=[^"]+)"', shown)
    assert link is not None
    rest = text_of(ida.get(at + link[1].replace("&amp;", "&")))
    assert "Topic t059" in rest
    assert "Topic t059" not in shown


def test_a_viewer_and_a_stranger_change_no_rule(
    join: Callable[[str], Member], browse: Callable[[Member], Client], stranger: Member, at: str, instance: Instance,
    acls: FakeAcls,
) -> None:  # fmt: skip
    before = {owner: set(rules) for owner, rules in acls.rules_by_instance.items()}
    (present,) = acls.rules_by_instance[instance.pk]
    viewer, eve = browse(join("viewer")), browse(stranger)
    delete = reverse("page-acl-delete", args=[instance.pk])
    assert viewer.post(at, READING).status_code == 403
    assert viewer.post(delete, asdict(present)).status_code == 403
    for place, body in ((at, READING), (delete, asdict(present)), (reverse("page-acl-undo", args=[instance.pk]), {})):
        assert eve.post(place, body).status_code == 404
    assert acls.rules_by_instance == before
