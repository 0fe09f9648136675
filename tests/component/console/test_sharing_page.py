"""Policy of sharing an instance's limits over brokers, on its page of settings."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance


@pytest.fixture()
def at(instance: Instance) -> str:
    return reverse("page-instance-settings", args=[instance.pk])


def test_the_policy_and_where_quotas_hold_are_chosen(ida: Client, at: str, instance: Instance) -> None:
    response = ida.post(at, {"part": "sharing", "bandwidth_policy": "static", "quota_scope": "broker"})
    assert response.status_code == 302
    instance.refresh_from_db()
    chosen = instance.settings_in_force
    assert (chosen["bandwidth_policy"], chosen["quota_scope"]) == ("static", "broker")


def test_the_chosen_policy_is_shown(ida: Client, at: str) -> None:
    shown = ida.get(at).content.decode()
    assert "Limits over brokers" in shown
    assert '<option value="adaptive" selected>' in shown
    assert '<option value="cluster" selected>' in shown


def test_an_unknown_policy_is_refused_beside_its_field(ida: Client, at: str, instance: Instance) -> None:
    response = ida.post(at, {"part": "sharing", "bandwidth_policy": "fair", "quota_scope": "cluster"})
    assert response.status_code == 422
    instance.refresh_from_db()
    assert instance.settings_in_force["bandwidth_policy"] == "adaptive"


def test_where_quotas_hold_is_said_on_their_page(ida: Client, instance: Instance, at: str) -> None:
    page = reverse("page-quotas", args=[instance.pk])
    assert "over all brokers together" in ida.get(page).content.decode()
    ida.post(at, {"part": "sharing", "bandwidth_policy": "adaptive", "quota_scope": "broker"})
    assert "hold per broker" in ida.get(page).content.decode()
