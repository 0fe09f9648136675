"""A changed password is a change like any other: the audit log has who, when and from where, and never the password."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tenants.models import AuditEntry
from tests.testkit.api_cases import make_member

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
