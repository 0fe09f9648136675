"""Webhooks in the console: a secret is shown once, every state is shown, and each tenant sees its own only."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from notifications.models import WebhookDelivery, WebhookEndpoint
from notifications.webhooks import services
from tenants.actors import member_actor
from tenants.api import rates
from tenants.models import AuditEntry, Member

pytestmark = pytest.mark.django_db

URL = "https://example.com/penstock"
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


@pytest.fixture
def webhook(owner: Member) -> WebhookEndpoint:
    return services.create_endpoint(acting=member_actor(owner), url=URL)[0]


def at(name: str, webhook: WebhookEndpoint, *more: str) -> str:
    return reverse(name, args=[webhook.pk, *more])


def page(client: Client, webhook: WebhookEndpoint) -> str:
    answer = client.get(at("page-webhook", webhook))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_webhook_is_added_and_its_secret_shown_once_and_kept_by_no_cache(ida: Client, owner: Member) -> None:
    assert "No webhook yet" in ida.get(reverse("page-webhooks")).content.decode()
    made = ida.post(reverse("page-webhooks"), {"url": URL, "in_tenant": owner.tenant_id})
    webhook = WebhookEndpoint.objects.get()
    assert made.status_code == 200 and made["Cache-Control"] == "no-store"
    assert len(set(SECRET.findall(made.content.decode()))) == 1

    listed = ida.get(reverse("page-webhooks")).content.decode()
    assert URL in listed and not SECRET.search(listed)
    assert not SECRET.search(page(ida, webhook))


@pytest.mark.parametrize("url", ["", "http://example.com/", "https://127.0.0.1/", "https://example.com:22/"])
def test_an_address_that_may_not_be_is_refused_beside_its_field(ida: Client, owner: Member, url: str) -> None:
    refused = ida.post(reverse("page-webhooks"), {"url": url, "in_tenant": owner.tenant_id})
    assert refused.status_code == 422 and 'class="error"' in refused.content.decode()
    assert not WebhookEndpoint.objects.exists()


def test_the_same_address_again_makes_no_second_webhook(ida: Client, owner: Member, webhook: WebhookEndpoint) -> None:
    refused = ida.post(reverse("page-webhooks"), {"url": URL, "in_tenant": owner.tenant_id})
    assert refused.status_code == 422 and not SECRET.search(refused.content.decode())
    assert WebhookEndpoint.objects.count() == 1


def test_it_is_turned_off_and_on_and_sends_no_test_while_it_is_off(ida: Client, webhook: WebhookEndpoint) -> None:
    ida.post(at("page-webhook-turn", webhook), {"to": "off"})
    assert (
        "Turn on" in page(ida, webhook)
        and "Send a test"
        not in page(ida, webhook)[page(ida, webhook).index("<h1") : page(ida, webhook).index("Deliveries")]
    )
    ida.post(at("page-webhook-test", webhook))
    assert not WebhookDelivery.objects.exists()
    ida.post(at("page-webhook-turn", webhook), {"to": "on"})
    webhook.refresh_from_db()
    assert webhook.is_enabled
    assert (
        list(AuditEntry.objects.filter(action="webhook.changed").values_list("target_id", flat=True))
        == [webhook.pk] * 2
    )


def test_another_secret_is_shown_once_and_the_same_form_again_makes_no_third(
    ida: Client, webhook: WebhookEndpoint
) -> None:
    form = {"version": str(webhook.version)}
    made = ida.post(at("page-webhook-rotate", webhook), form)
    assert SECRET.search(made.content.decode()) and made["Cache-Control"] == "no-store"
    after = WebhookEndpoint.objects.values("secret", "former_secret").get()

    again = ida.post(at("page-webhook-rotate", webhook), form)
    assert again.status_code == 302
    assert WebhookEndpoint.objects.values("secret", "former_secret").get() == after
    assert "The former secret signs as well until" in page(ida, webhook)


def test_deliveries_show_state_tries_and_answer_and_what_is_over_is_sent_again(
    ida: Client, webhook: WebhookEndpoint
) -> None:
    assert "Nothing delivered yet" in page(ida, webhook)
    ida.post(at("page-webhook-test", webhook))
    assert "Waiting" in page(ida, webhook) and "Send again" not in page(ida, webhook)
    WebhookDelivery.objects.update(
        state="failed", finished_at=timezone.now(), attempts=9, status=500, answer="<b>out of order</b>"
    )
    message = page(ida, webhook)
    assert "Given up" in message and "&lt;b&gt;out of order&lt;/b&gt;" in message and ">9<" in message
    delivery = WebhookDelivery.objects.get()

    ida.post(at("page-webhook-resend", webhook, delivery.pk))
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("pending", 0)
    ida.post(at("page-webhook-resend", webhook, delivery.pk))
    assert "waits for its next try already" in page(ida, webhook)


def test_deliveries_come_in_pages(ida: Client, webhook: WebhookEndpoint) -> None:
    WebhookDelivery.objects.bulk_create(
        WebhookDelivery(endpoint=webhook, event="webhook.test", payload={}) for _ in range(120)
    )
    seen: list[str] = []
    url: str | None = at("page-webhook", webhook)
    while url is not None:
        message = ida.get(url).content.decode()
        seen += re.findall(r'mono">(whd-\w+)<', message)
        older = re.search(r'href="([^"]*page_token=[^"]*)"', message)
        url = older[1].replace("&amp;", "&") if older else None
    assert sorted(seen) == sorted(WebhookDelivery.objects.values_list("pk", flat=True))


def test_it_is_deleted_when_its_id_is_typed_and_not_before(ida: Client, webhook: WebhookEndpoint) -> None:
    assert "Type " in ida.get(at("page-webhook-delete", webhook)).content.decode()
    ida.post(at("page-webhook-delete", webhook), {"typed": "yes"})
    assert WebhookEndpoint.objects.exists()
    assert ida.post(at("page-webhook-delete", webhook), {"typed": webhook.pk}).status_code == 302
    assert not WebhookEndpoint.objects.exists()


ACTS = (
    ("page-webhook-turn", {"to": "off"}), ("page-webhook-rotate", {"version": "1"}), ("page-webhook-test", {}),
    ("page-webhook-resend", {}), ("page-webhook-delete", {}),
)  # fmt: skip


def asked(client: Client, webhook: WebhookEndpoint, name: str, form: dict[str, str]) -> Any:
    delivery = WebhookDelivery.objects.create(endpoint=webhook, event="webhook.test", payload={}, state="failed")
    more = [delivery.pk] if name == "page-webhook-resend" else []
    return client.post(at(name, webhook, *more), form | {"typed": webhook.pk})


@pytest.mark.parametrize(("name", "form"), ACTS)
def test_another_tenants_webhook_is_not_found(
    stranger: Member, browse: Callable[[Member], Client], webhook: WebhookEndpoint, name: str, form: dict[str, str]
) -> None:
    before = WebhookEndpoint.objects.values().get()
    assert asked(browse(stranger), webhook, name, form).status_code == 404
    assert browse(stranger).get(at("page-webhook", webhook)).status_code == 404
    assert WebhookEndpoint.objects.values().get() == before
    assert WebhookDelivery.objects.get().state == "failed"


@pytest.mark.parametrize(("name", "form"), ACTS)
def test_an_admin_sees_webhooks_and_changes_none(
    join: Callable[[str], Member], browse: Callable[[Member], Client], webhook: WebhookEndpoint, name: str,
    form: dict[str, str],
) -> None:  # fmt: skip
    client = browse(join("admin"))
    before = WebhookEndpoint.objects.values().get()
    assert asked(client, webhook, name, form).status_code == 403
    assert WebhookEndpoint.objects.values().get() == before
    message = page(client, webhook)
    assert "Send again" not in message and "/rotate/" not in message and "/delete/" not in message
    assert client.get(at("page-webhook-delete", webhook)).status_code == 403


def test_changes_have_the_rate_that_they_have_over_rest(
    ida: Client, webhook: WebhookEndpoint, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[tuple[str, bool]] = []

    def exceeded(identity: str, *, is_anonymous: bool, is_write: bool) -> rates.LimitState:
        charged.append((identity, is_write))
        return rates.LimitState(limit=1, remaining=0, reset_s=30, is_exceeded=len(charged) > 1)

    monkeypatch.setattr(rates, "charge", exceeded)
    ida.post(at("page-webhook-test", webhook))
    refused = ida.post(at("page-webhook-test", webhook))
    assert WebhookDelivery.objects.count() == 1
    assert {is_write for _, is_write in charged} == {True} and len({identity for identity, _ in charged}) == 1
    assert refused.status_code == 429 and "Too many changes in a minute" in refused.content.decode()


def test_the_pages_speak_chinese(ida: Client, webhook: WebhookEndpoint) -> None:
    ida.post("/preferences/", {"language": "zh-hans", "theme": "dark", "next": "/"})
    assert "添加 Webhook" in ida.get(reverse("page-webhooks")).content.decode()
    assert "投递记录" in page(ida, webhook)
    assert "删除" in ida.get(at("page-webhook-delete", webhook)).content.decode()
