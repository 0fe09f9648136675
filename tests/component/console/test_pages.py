"""Every page of the console: shown to its owner, hidden from strangers, and explained to members with too
small a role.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance
from tenants.models import Member

ACCOUNT_PAGES = (
    "page-instances", "page-operations", "page-instance-create", "page-account-usage", "page-members", "page-tokens",
    "page-invoices", "page-budgets", "page-archives", "page-webhooks",
    "page-alert-rules",
    "page-audit", "page-settings", "page-palette",
)  # fmt: skip
INSTANCE_PAGES = (
    "page-instance", "page-traffic", "page-why", "page-topics-part", "page-throttle", "page-instance-settings",
    "page-instance-delete", "page-topics", "page-topic-create", "page-instance-resize", "page-cost-part", "page-usage",
    "page-traffic-history", "page-quotas", "page-address-quotas", "page-groups", "page-groups-part",
    "page-transactions", "page-clients", "page-users", "page-acls", "page-storage",
)  # fmt: skip
GROUP_PAGES = ("page-group", "page-group-reset", "page-group-delete")
USER_PAGES = ("page-user", "page-user-delete")
TOPIC_PAGES = (
    "page-topic", "page-topic-partitions", "page-topic-config", "page-topic-access", "page-topic-delete",
    "page-topic-purge", "page-topic-clone", "page-topic-producers", "page-topic-traffic", "page-topic-consumers",
    "page-topic-messages-file", "page-topic-send",
)  # fmt: skip
VIEWER_MAY_NOT = (
    "page-instance-create", "page-tokens", "page-audit", "page-topic-create", "page-instance-resize", "page-invoices",
    "page-budgets", "page-webhooks", "page-instance-delete", "page-topic-delete", "page-cost-part", "page-group-reset",
    "page-group-delete", "page-user-delete", "page-topic-messages-file", "page-topic-send",
    "page-topic-purge", "page-topic-clone",
)  # fmt: skip
POST_FORM = re.compile(r'<form\b(?=[^>]*method="post")(?:[^>]*action="([^"]*)")?')
OWN_FORMS = {"/preferences/", "/tenant/", "/accounts/logout/"}


PAGES_OF_AN_INSTANCE = (*INSTANCE_PAGES, *TOPIC_PAGES, *GROUP_PAGES, *USER_PAGES, "page-transaction")


def url_of(page: str, instance: Instance) -> str:
    if page in GROUP_PAGES:
        return reverse(page, args=[instance.pk]) + "?group=reports"
    if page in USER_PAGES:
        return reverse(page, args=[instance.pk]) + "?user=billing"
    if page == "page-transaction":
        return reverse(page, args=[instance.pk]) + "?id=mover"
    if page == "page-topic-messages-file":
        return reverse(page, args=[instance.pk, "orders.created", "jsonl"])
    if page in TOPIC_PAGES:
        return reverse(page, args=[instance.pk, "orders.created"])
    return reverse(page, args=[instance.pk]) if page in INSTANCE_PAGES else reverse(page)


@pytest.mark.parametrize("page", (*ACCOUNT_PAGES, *PAGES_OF_AN_INSTANCE))
def test_a_page_answers_its_owner(page: str, ida: Client, instance: Instance) -> None:
    assert ida.get(url_of(page, instance)).status_code == 200


@pytest.mark.parametrize("page", PAGES_OF_AN_INSTANCE)
def test_another_tenants_instance_is_not_found(
    page: str, stranger: Member, browse: Callable[[Member], Client], instance: Instance
) -> None:
    response = browse(stranger).get(url_of(page, instance))
    assert response.status_code == 404
    assert instance.name not in response.content.decode()


@pytest.mark.parametrize("page", (*ACCOUNT_PAGES, *PAGES_OF_AN_INSTANCE))
def test_a_page_sends_strangers_to_log_in(page: str, client: Client, instance: Instance) -> None:
    response = client.get(url_of(page, instance))
    assert response.status_code == 302
    assert response["Location"].startswith("/accounts/login/?next=/")


@pytest.mark.parametrize("page", (*ACCOUNT_PAGES, *PAGES_OF_AN_INSTANCE))
def test_a_viewer_sees_and_changes_nothing(
    page: str, join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance
) -> None:
    response = browse(join("viewer")).get(url_of(page, instance))
    if page in VIEWER_MAY_NOT:
        assert response.status_code == 403
        assert "These roles may: Owner" in response.content.decode()
        return
    assert response.status_code == 200
    if response["Content-Type"].startswith("text/html"):
        offered = {form for form in POST_FORM.findall(response.content.decode()) if form not in OWN_FORMS}
        assert not {form for form in offered if "/remove/" not in form and page != "page-settings"}


@pytest.mark.parametrize("page", (*ACCOUNT_PAGES, *PAGES_OF_AN_INSTANCE))
def test_a_page_needs_no_inline_code(page: str, ida: Client, instance: Instance) -> None:
    response = ida.get(url_of(page, instance))
    html = response.content.decode()
    assert "unsafe-inline" not in response["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", html)
    assert not re.search(r"<style\b", html)
    assert not re.search(r"""<[^>]+\sstyle\s*=""", html)
    assert not re.search(r"""<[^>]+\son[a-z]+\s*=""", html)
    assert not re.search(r"""(?:src|href)="(?:https?:)?//""", html)


def test_unknown_pages_of_an_instance_are_not_found(ida: Client, instance: Instance) -> None:
    assert ida.get(f"/instances/{instance.pk}/topics/t/nothing.here/").status_code == 404
    assert ida.get("/instances/ins-00000000/").status_code == 404
    assert ida.get("/instances/'%20or%201=1/").status_code == 404


@pytest.mark.parametrize("page", ["account_inactive", "account_reauthenticate"])
def test_pages_of_the_sign_in_library_look_like_ours(ida: Client, page: str) -> None:
    shown = ida.get(reverse(page)).content.decode()
    assert "· Penstock</title>" in shown
    assert 'class="entry-card"' in shown


def test_an_e_mail_address_is_not_changed_behind_the_audit_log(ida: Client, owner: Member) -> None:
    before = owner.user.email
    for body in ({"action_add": "", "email": "x@example.com"}, {"action_primary": "", "email": "x@example.com"}):
        assert ida.post("/accounts/email/", body).status_code == 404
    assert ida.get("/accounts/email/").status_code == 404
    owner.user.refresh_from_db()
    assert owner.user.email == before
