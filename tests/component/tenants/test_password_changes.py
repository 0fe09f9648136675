"""Changed passwords in the audit log: actor, time and address, and never the password."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.cache import cache
from django.core.mail import EmailMessage
from django.test import Client
from django.urls import reverse

from tenants.limits import SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX
from tenants.models import AuditEntry
from tests.testkit.api_cases import Api, make_member, make_token

pytestmark = pytest.mark.django_db
OLD, NEW = "the old one is long", "the next one is longer"


def test_a_password_that_its_owner_changes_leaves_a_row() -> None:
    user = make_member().user
    user.set_password(OLD)
    user.save()
    browser = Client()
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    form = {"oldpassword": OLD, "password1": NEW, "password2": NEW}
    assert browser.post(reverse("account_change_password"), form | {"oldpassword": "wrong"}).status_code == 200
    assert not AuditEntry.objects.filter(action="password.changed").exists()
    assert browser.post(reverse("account_change_password"), form).status_code == 302
    user.refresh_from_db()
    assert user.check_password(NEW)
    entry = AuditEntry.objects.get(action="password.changed")
    assert (entry.actor_id, entry.target_id, entry.ip) == (user.pk, user.pk, "127.0.0.1")
    assert NEW not in str(entry.after)


@pytest.mark.parametrize("tokens_too", [True, False])
def test_a_new_password_ends_other_sessions_and_by_choice_tokens(tokens_too: bool) -> None:
    member, other = make_member(), make_member()
    user = member.user
    user.set_password(OLD)
    user.save()
    tokens = [make_token(member), make_token(other)]
    browser, elsewhere = Client(), Client()
    for client in (browser, elsewhere):
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    page = browser.get(reverse("account_change_password")).content.decode()
    assert 'name="revoke_tokens"' in page
    assert "checked" in page.partition('name="revoke_tokens"')[2].partition(">")[0]
    form = {"oldpassword": OLD, "password1": NEW, "password2": NEW} | ({"revoke_tokens": "on"} if tokens_too else {})
    assert browser.post(reverse("account_change_password"), form).status_code == 302
    assert browser.get("/api/v1/members").status_code == 200
    assert elsewhere.get("/api/v1/members").status_code == 401
    assert [Api(token).get("/members").status_code for token in tokens] == [401 if tokens_too else 200, 200]
    rows = AuditEntry.objects.filter(action="token.revoked", tenant=member.tenant)
    assert [row.actor_id for row in rows] == ([user.pk] if tokens_too else [])


def test_a_reset_link_leads_to_the_public_url_whatever_the_host_of_the_request(
    settings: Any, mailoutbox: list[EmailMessage]
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    settings.PUBLIC_URL = "https://console.example.com"
    for email in (make_member().user.email, "nobody@example.com"):
        Client().post(reverse("account_reset_password"), {"email": email}, headers={"Host": "evil.example"})
    assert len(mailoutbox) == 2
    for mail in mailoutbox:
        words = f"{mail.subject}\n{mail.body}"
        assert "evil.example" not in words
        assert re.findall(r"https?://[^/\s]+", words) == ["https://console.example.com"]


def test_a_reset_opens_an_account_that_others_keep_guessing_at(settings: Any, mailoutbox: list[EmailMessage]) -> None:
    cache.clear()
    user, browser = make_member().user, Client()
    for _ in range(SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX):
        browser.post(reverse("account_login"), {"login": user.email, "password": "a guess"})
    browser.post(reverse("account_reset_password"), {"email": user.email})
    link = re.search(r"/accounts/password/reset/key/\S+", mailoutbox[0].body)
    assert link is not None
    form = browser.get(link[0], follow=True)
    at = form.redirect_chain[-1][0]
    assert "revoke_tokens" in form.content.decode()
    assert browser.post(at, {"password1": NEW, "password2": NEW}).status_code == 302
    user.refresh_from_db()
    assert user.email_verified_at is not None
    answer = browser.post(reverse("account_login"), {"login": user.email, "password": NEW})
    assert answer.status_code == 302, answer.content
    cache.clear()
