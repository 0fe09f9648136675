"""Confirmations before irreversible actions, and refusals that name their reason."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from billing.budgets import services as budgets
from billing.models import Budget
from instances.models import Instance
from instances.templatetags.access import user_url
from notifications.alerts import services as alerts
from notifications.models import AlertRule
from quotas import services as quotas
from quotas.interfaces import EntityPart
from tenants import services
from tenants.actors import member_actor, system_actor
from tenants.choices import Scope, SuspensionReason
from tenants.models import ApiToken, Member, User
from tests.component.console.fakes import FakeQuotaAdminClient

pytestmark = pytest.mark.django_db


def text(answer: Any) -> str:
    page = html.unescape(answer.content.decode())
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<main")[2]).split())


def form_of(answer: Any) -> tuple[str, dict[str, str]]:
    """Returns target and fields of the form in a question, as a browser without scripts sends them."""
    page = html.unescape(answer.content.decode()).partition('class="confirm"')[2]
    (action,) = re.findall(r'<form method="post" action="([^"]*)"', page)
    fields = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page.partition("</form>")[0]))
    fields.pop("csrfmiddlewaretoken", None)
    assert fields["question_back"].startswith("/")
    return action, fields


def asked_then_done(client: Client, address: str, given: dict[str, str], is_done: Callable[[], bool]) -> str:
    """Sends a form, checks that nothing happened, and confirms. Returns the text of the question."""
    question = client.post(address, given)
    assert question.status_code == 200
    assert not is_done()
    action, fields = form_of(question)
    assert given.items() <= fields.items()
    assert client.post(action, fields).status_code == 302
    assert is_done()
    return text(question)


def test_a_token_is_revoked_after_a_question(ida: Client, owner: Member) -> None:
    token, _secret = services.create_token(acting=member_actor(owner), name="deploy", scopes=[Scope.INSTANCES_READ])
    address = reverse("page-token-revoke", args=[token.pk])
    words = asked_then_done(ida, address, {}, lambda: ApiToken.objects.get().revoked_at is not None)
    assert "Revoke token deploy?" in words
    assert "Last used: never." in words


def test_a_member_and_a_role_change_after_a_question(ida: Client, join: Callable[[str], Member]) -> None:
    member = join("developer")
    role = reverse("page-member-role", args=[member.pk])
    words = asked_then_done(ida, role, {"role": "viewer"}, lambda: Member.objects.get(pk=member.pk).role == "viewer")
    assert "Make developer@halvorsen.example Viewer?" in words
    remove = reverse("page-member-remove", args=[member.pk])
    asked_then_done(ida, remove, {}, lambda: Member.objects.get(pk=member.pk).removed_at is not None)


def test_a_role_that_there_is_not_is_refused_with_the_reason(ida: Client, join: Callable[[str], Member]) -> None:
    member = join("developer")
    page = ida.post(reverse("page-member-role", args=[member.pk]), {"role": "emperor", "confirmed": "yes"}, follow=True)
    assert "There is no such role." in page.content.decode()
    assert Member.objects.get(pk=member.pk).role == "developer"


def test_a_quota_goes_after_a_question(
    ida: Client, owner: Member, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    quotas.set_quota(
        acting=member_actor(owner), instance=instance, user=EntityPart(name="etl <b>"), client_id=None,
        limits={"producer_byte_rate": 1_000.0},
    )  # fmt: skip
    entity = {"user_kind": "name", "user": "etl <b>", "client_id_kind": "none", "client_id": ""}
    address = reverse("page-quota-delete", args=[instance.pk])
    question = ida.post(address, entity)
    assert "Remove the quota of user etl <b>?" in html.unescape(question.content.decode())
    asked_then_done(ida, address, entity, lambda: not quota_admin_client.found[instance.pk])


def test_a_budget_and_an_alert_rule_go_after_a_question(ida: Client, owner: Member, instance: Instance) -> None:
    budget = budgets.create_budget(acting=member_actor(owner), name="all", amount=Decimal(10), instance_id="")
    asked_then_done(ida, reverse("page-budget-delete", args=[budget.pk]), {}, lambda: not Budget.objects.exists())
    rule = alerts.create_rule(
        acting=member_actor(owner), instance=instance, name="full", kind="storage_used", threshold=80
    )
    address = reverse("page-alert-rule-act", args=[rule.pk, "delete"])
    asked_then_done(ida, address, {}, lambda: not AlertRule.objects.exists())


def test_a_password_goes_after_a_question(ida: Client, instance: Instance) -> None:
    address = user_url("page-user", instance.pk, "billing")
    question = ida.post(address, {"part": "remove", "secret": "sec-of-billing"})
    assert "Remove a password of billing?" in text(question)
    fields = form_of(question)[1]
    assert fields.items() >= {"part": "remove", "secret": "sec-of-billing", "confirmed": "yes"}.items()


def test_a_disabled_user_is_enabled_again_by_undo(ida: Client, instance: Instance) -> None:
    page = ida.post(user_url("page-user", instance.pk, "billing"), {"part": "disable"}, follow=True)
    assert user_url("page-user-enable", instance.pk, "billing") in html.unescape(page.content.decode())


def test_a_question_shows_what_a_stranger_typed_as_text(ida: Client, instance: Instance) -> None:
    entity = {"user_kind": "name", "user": '"><script>x</script>', "client_id_kind": "none", "client_id": ""}
    page = ida.post(reverse("page-quota-delete", args=[instance.pk]), entity).content.decode()
    assert "<script>x" not in page


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "words"), [(SuspensionReason.ABUSE, "Abuse"), (SuspensionReason.UNPAID, "Unpaid invoice")]
)
def test_a_suspended_owner_reads_who_suspended_what_and_why(
    ida: Client, instance: Instance, reason: SuspensionReason, words: str
) -> None:
    services.suspend_tenant(acting=system_actor("tests"), tenant=instance.tenant, reason=reason, note="Write to <ops>.")
    answer = ida.get(reverse("page-topic-create", args=[instance.pk]))
    page = text(answer)
    assert answer.status_code in (402, 403)
    assert "Halvorsen Freight is suspended" in page
    assert re.search(rf"The operator suspended Halvorsen Freight on .{{5,30}}: {words}\. ", page)
    assert "Write to <ops>." in html.unescape(answer.content.decode())
    assert "Your role does not allow this" not in page
    assert "These roles may" not in page
    assert ("To the invoices" in page) == (reason == SuspensionReason.UNPAID)


def test_a_missing_permission_is_said_in_words(instance: Instance, join: Any, browse: Any) -> None:
    viewer = browse(join("viewer"))
    answer = viewer.get(reverse("page-topic-create", args=[instance.pk]))
    page = text(answer)
    assert answer.status_code == 403
    assert "This needs the permission “Create, change and delete topics”." in page
    assert "topics:write" not in page
    assert "These roles may: Owner, Admin, Developer." in page


@pytest.mark.parametrize("address", ["topics/t/not-there/", "no-such-page/", "groups/one/?group=nobody"])
def test_a_missing_page_inside_an_instance_keeps_its_menu(ida: Client, instance: Instance, address: str) -> None:
    answer = ida.get(f"/instances/{instance.pk}/{address}")
    assert answer.status_code == 404
    assert reverse("page-topics", args=[instance.pk]) in answer.content.decode()


def test_a_refusal_inside_an_instance_keeps_its_menu(instance: Instance, join: Any, browse: Any) -> None:
    viewer = browse(join("viewer"))
    answer = viewer.get(reverse("page-topic-create", args=[instance.pk]))
    assert reverse("page-groups", args=[instance.pk]) in answer.content.decode()


def test_a_stranger_learns_nothing_of_an_instance_from_what_is_missing(
    instance: Instance, stranger: Member, browse: Any
) -> None:
    eve = browse(stranger)
    for address in ("no-such-page/", "topics/t/not-there/", ""):
        answer = eve.get(f"/instances/{instance.pk}/{address}")
        assert answer.status_code == 404
        assert "orders-prod" not in answer.content.decode()
        assert f'href="{reverse("page-topics", args=[instance.pk])}' not in answer.content.decode()


def test_an_address_that_no_page_has_is_not_found_for_everybody(ida: Client) -> None:
    assert ida.get("/no/such/page").status_code == 404
    assert Client().get("/no/such/page").status_code == 404
    assert Client().get("/instances/ins-aaaaaaaa/no-such-page/").status_code == 404


def test_the_refusals_are_chinese_for_who_reads_chinese(instance: Instance, ida: Client) -> None:
    services.suspend_tenant(
        acting=system_actor("tests"), tenant=instance.tenant, reason=SuspensionReason.ABUSE, note=""
    )
    User.objects.update(language="zh-hans")
    page = text(ida.get(reverse("page-topic-create", args=[instance.pk])))
    assert "已暂停" in page
    assert "suspended" not in page
