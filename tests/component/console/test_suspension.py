"""Texts for a suspended tenant: the operator's note on every page that shows the suspension."""

from __future__ import annotations

import html

import pytest
from django.test import Client
from django.urls import reverse

from instances import services
from instances.models import Instance
from tenants import services as tenant_services
from tenants.actors import system_actor
from tenants.choices import SuspensionReason
from tests.testkit.api_cases import Api, make_token

NOTE = "Card declined twice. Write to billing@penstock.example."
PLATFORM = system_actor("tests")


def read(ida: Client, instance: Instance, page: str) -> str:
    return html.unescape(ida.get(reverse(page, args=[instance.pk])).content.decode())


@pytest.mark.parametrize("page", ["page-instance", "page-throttle"])
def test_a_suspended_tenant_reads_reason_and_words_of_the_operator(ida: Client, instance: Instance, page: str) -> None:
    tenant_services.suspend_tenant(
        acting=PLATFORM, tenant=instance.tenant, reason=SuspensionReason.ABUSE, note=f"  {NOTE} "
    )
    shown = read(ida, instance, page)
    assert ": Abuse." in shown
    assert f"<q>{NOTE}</q>" in shown
    assert "Produce is refused, not delayed." in shown
    assert "No client waits." not in shown


def test_an_instance_suspended_alone_says_so_and_its_note(ida: Client, instance: Instance) -> None:
    services.suspend_instance(acting=PLATFORM, instance=instance, note=NOTE)
    shown = read(ida, instance, "page-throttle")
    assert ": Suspended by the operator." in shown
    assert NOTE in shown


def test_the_operators_note_is_text_and_no_markup(ida: Client, instance: Instance) -> None:
    services.suspend_instance(acting=PLATFORM, instance=instance, note="<b>bold</b>")
    assert b"<b>bold</b>" not in ida.get(reverse("page-why", args=[instance.pk])).content


def test_the_api_tells_the_words_until_the_tenant_is_resumed(instance: Instance) -> None:
    api = Api(make_token(instance.tenant.members.get()))
    tenant_services.suspend_tenant(acting=PLATFORM, tenant=instance.tenant, reason=SuspensionReason.OTHER, note=NOTE)
    path = f"/instances/{instance.pk}"
    assert api.get(path).json()["status"]["message"] == NOTE
    assert api.get(f"/tenants/{instance.tenant_id}").json()["suspension_note"] == NOTE
    tenant_services.resume_tenant(acting=PLATFORM, tenant=instance.tenant)
    assert api.get(path).json()["status"]["message"] == ""
    assert api.get(f"/tenants/{instance.tenant_id}").json()["suspension_note"] == ""
