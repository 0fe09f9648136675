"""All addresses below an instance, taken from the list of addresses: strangers, members without the role, and what is
missing. An address that is added is walked, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from instances.models import Instance
from tenants.models import AuditEntry, Member

TOPIC = "orders.created"
# A value of each parameter that exists, where the fixture has one, and one that does not.
EXISTING = {
    "name": TOPIC, "suffix": "csv", "schema_id": "sch-aaaaaaaa", "connection_id": "c-1", "copy_id": "cpy-aaaaaaaa",
    "act": "cancel", "operation_id": "op-aaaaaaaa",
}  # fmt: skip
MISSING = {**EXISTING, "name": "not-there"}
QUERY = "group=reports&user=billing&id=mover"
NO_QUERY = "group=nobody&user=nobody&id=nothing"
# Addresses that answer programs, or put a part into a page that is there already.
PARTS = {
    "page-traffic", "page-traffic-history", "page-why", "page-bandwidth", "page-topics-part", "page-groups-part",
    "page-steps", "page-user-names", "page-cost-part", "page-topic-waiting", "page-topic-copies",
}  # fmt: skip
# Acts that POST carries out at once: each is undone by another one, or loses nothing.
UNDONE = {
    "page-acl-delete": "page-acl-undo restores the rule",
    "page-instance-close": "clients are shut out until the rule that lets everybody in is made again in the settings",
}
IRREVERSIBLE = re.compile(r"delete|remove|purge|revoke|abort|close|reset")


def addresses(patterns: list[URLPattern | URLResolver]) -> Iterator[URLPattern]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns)
        elif "instance_id" in pattern.pattern.regex.groupindex and str(pattern.name).startswith("page-"):
            yield pattern


BY_NAME = {str(pattern.name): pattern for pattern in addresses(get_resolver().url_patterns)}


def address_of(name: str, instance: Instance, given: dict[str, str], query: str = QUERY) -> str:
    parameters = set(BY_NAME[name].pattern.regex.groupindex) - {"instance_id"}
    values = {parameter: given[parameter] for parameter in parameters}
    if name.startswith("page-route") and values:
        values["name"] = "default" if given is EXISTING else "not-there"
    return reverse(name, kwargs={"instance_id": instance.pk, **values}) + f"?{query}"


def answer_to(client: Client, method: str, address: str) -> Any:
    return client.get(address) if method == "GET" else client.post(address, {"nothing": "of use"})


def has_menu(answer: Any, instance: Instance) -> bool:
    page = answer.content.decode()
    return f'href="{reverse("page-instance", args=[instance.pk])}"' in page and "<nav" in page


def test_the_walk_is_long_enough() -> None:
    assert len(BY_NAME) > 60
    assert PARTS | UNDONE.keys() <= BY_NAME.keys()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_stranger_finds_nothing_below_an_instance(
    method: str, stranger: Member, browse: Callable[[Member], Client], instance: Instance
) -> None:
    eve = browse(stranger)
    before = AuditEntry.objects.filter(tenant=instance.tenant).count()
    for name in BY_NAME:
        answer = answer_to(eve, method, address_of(name, instance, EXISTING))
        assert answer.status_code == 404, name
        assert instance.name not in answer.content.decode(), name
        assert not has_menu(answer, instance), name
    assert AuditEntry.objects.filter(tenant=instance.tenant).count() == before


@pytest.mark.parametrize("role", ["viewer", "finance"])
def test_a_member_without_the_role_is_refused_beside_the_menu_and_changes_nothing(
    role: str, join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance
) -> None:
    member = browse(join(role))
    before = AuditEntry.objects.filter(tenant=instance.tenant).exclude(action="messages.read").count()
    refused = 0
    for name in BY_NAME:
        for method in ("GET", "POST"):
            answer = answer_to(member, method, address_of(name, instance, EXISTING))
            # Forms that need more than was sent are shown again, and some acts that are not known lead back.
            assert answer.status_code in (200, 302, 403, 404, 405, 422), (name, method)
            if answer.status_code in (403, 404):
                refused += 1
                assert has_menu(answer, instance), (name, method)
            if answer.status_code == 403:
                assert "These roles may: " in answer.content.decode(), (name, method)
    assert refused > len(BY_NAME) // 2
    assert AuditEntry.objects.filter(tenant=instance.tenant).exclude(action="messages.read").count() == before


def test_a_missing_thing_keeps_the_menu_on_every_page(ida: Client, instance: Instance) -> None:
    missing = 0
    for name in BY_NAME:
        answer = ida.get(address_of(name, instance, MISSING, NO_QUERY))
        assert answer.status_code in (200, 302, 404, 405, 422), name
        if answer.status_code == 404:
            missing += 1
            assert has_menu(answer, instance), name
    assert missing >= 15


def test_no_act_that_loses_something_is_carried_out_by_one_post(ida: Client, instance: Instance) -> None:
    """A question, a name to type, or another act that undoes it stands before each."""
    walked = [name for name in BY_NAME if IRREVERSIBLE.search(name) and name not in UNDONE]
    assert len(walked) >= 10
    for name in walked:
        before = AuditEntry.objects.count()
        answer = answer_to(ida, "POST", address_of(name, instance, EXISTING))
        assert answer.status_code in (200, 302, 404, 422), name
        assert AuditEntry.objects.count() == before, name
