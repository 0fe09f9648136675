"""Empty lists of the operator panel: each says what it would show and what to do."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from tenants import services
from tenants.operator import OperatorAdmin

pytestmark = pytest.mark.django_db

LISTS = sorted((m for m, found in admin.site._registry.items() if isinstance(found, OperatorAdmin)), key=str)
NEVER_EMPTY = frozenset({"tenants.User", "tenants.AuditEntry"})  # the operator in this test, and its appointment


@pytest.fixture()
def panel() -> Client:
    client = Client()
    client.force_login(services.create_operator(email="ops@example.com", password="long enough for ops")[0])
    return client


@pytest.mark.parametrize("model", LISTS, ids=lambda model: model._meta.label)
def test_an_empty_list_says_what_would_stand_there(panel: Client, model: type) -> None:
    options = model._meta  # type: ignore[attr-defined]
    words = str(admin.site._registry[model].when_empty)  # type: ignore[attr-defined]
    assert words.endswith(".")
    page = panel.get(reverse(f"admin:{options.app_label}_{options.model_name}_changelist")).content.decode()
    assert "This page yielded into no results" not in page
    assert (escape(words) in page) == (options.label not in NEVER_EMPTY)


def test_a_search_that_finds_nothing_says_how_to_find_more(panel: Client) -> None:
    page = panel.get(reverse("admin:tenants_tenant_changelist") + "?q=nobody").content.decode()
    assert "Nothing matches" in page
    assert "Reset filters" in page
    assert "Tenants sign up" not in page
