"""Counts, sums and prices of a tenant's instances leave out failed and deleted ones, which are only listed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing import selectors as billing_selectors
from instances import selectors, services
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.actors import member_actor
from tenants.models import Member
from tests.testkit.billing import create_usage


@pytest.fixture(params=[Phase.FAILED, Phase.DELETING])
def gone(request: Any, owner: Member, instance: Instance) -> Instance:
    """An instance that failed, or that is deleted and can be restored, beside the running one."""
    made, _ = services.create_instance(acting=member_actor(owner), name="no-more", plan="stream")
    made.phase = request.param.value
    if request.param is Phase.DELETING:
        made.deleted_at, made.restorable_until = timezone.now(), timezone.now() + timedelta(days=1)
        made.first_running_at = timezone.now()
    made.save()
    return made


def text_of(client: Client, page: str, *args: str) -> str:
    return re.sub(r"<[^>]+>", "", client.get(reverse(page, args=args)).content.decode())


def test_the_head_of_the_list_counts_and_sums_without_it(ida: Client, instance: Instance, gone: Instance) -> None:
    page = text_of(ida, "page-instances")
    assert "1 instance in Halvorsen Freight." in page
    assert f"of {instance.bandwidth_mb_s} MB/s" in page
    assert f"of {instance.storage_gb} GB" in page
    assert "no-more" in page, "it is listed, to be restored or tried again"


def test_bought_amounts_are_without_it(owner: Member, instance: Instance, gone: Instance) -> None:
    assert selectors.purchased_totals(owner.tenant) == {
        "instances": 1, "bandwidth_mb_s": instance.bandwidth_mb_s, "storage_gb": instance.storage_gb,
    }  # fmt: skip


def test_usage_and_cost_are_without_it(ida: Client, owner: Member, instance: Instance, gone: Instance) -> None:
    quotes = billing_selectors.quotes_of([instance, gone], owner.tenant.currency)
    assert set(quotes) == {instance.pk}
    create_usage(gone.pk, timezone.now(), produce=7_777)
    shown = ida.get(reverse("page-account-usage"))
    assert shown.context["per_hour"] == quotes[instance.pk].per_hour
    assert shown.context["instances"] == 1
    assert shown.context["produce_bytes"] == 0


def test_its_own_pages_show_no_price(ida: Client, gone: Instance) -> None:
    assert "per hour" not in text_of(ida, "page-cost-part", gone.pk)
    assert "Failed and deleted instances cost nothing" in text_of(ida, "page-usage", gone.pk)
