"""Quotas that are not in bytes, in the console: set, explained, and shown as the cause of a delay."""

from __future__ import annotations

from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance
from quotas.interfaces import EntityPart
from tests.component.console.fakes import FakeObservation, FakeQuotaAdminClient, throttle

ENTITY = {"user_kind": "none", "user": "", "client_id_kind": "name", "client_id": "loader"}
PART = (None, EntityPart(name="loader"))


def text_of(response: object) -> str:
    return unescape(response.content.decode())  # type: ignore[attr-defined,no-any-return]


def test_all_four_limits_are_set_and_explained_in_their_units(
    ida: Client, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    address = reverse("page-quotas", args=[instance.pk])

    ida.post(address, ENTITY | {"produce_mb_s": "1.5", "request_percent": "12.5", "partitions_per_s": "2"})

    assert quota_admin_client.found[instance.pk] == {
        PART: {"producer_byte_rate": 1_500_000.0, "request_percentage": 12.5, "controller_mutation_rate": 2.0}
    }
    page = text_of(ida.get(f"{address}?explain=1&user=etl&client_id=loader"))
    for words in ("1.5 MB/s applies", "12.5 % of a broker's time applies", "2 partitions/s applies"):
        assert words in page
    assert "Request time: 12.5 % of a broker's time" in page


def test_quotas_of_time_and_changes_stay_when_the_form_leaves_them_out(
    ida: Client, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    address = reverse("page-quotas", args=[instance.pk])
    ida.post(address, ENTITY | {"request_percent": "12.5"})

    ida.post(address, ENTITY | {"produce_mb_s": "2"})

    assert quota_admin_client.found[instance.pk] == {
        PART: {"producer_byte_rate": 2_000_000.0, "request_percentage": 12.5}
    }


@pytest.mark.parametrize(
    ("entry", "sentence", "row"),
    [
        (
            {"quota": "request_percentage", "limit_per_s": 12.5, "whole_limit_per_s": 12.5},
            "Requests of user reports may take 12.5 % of a broker's time (level 3 of 8: user).",
            "12.5 % of a broker's time",
        ),
        (
            {"quota": "controller_mutation_rate", "limit_per_s": 4.5, "whole_limit_per_s": 5.0},
            "User reports may create, add or delete 5 partitions/s (level 3 of 8: user).",
            "5 partitions/s",
        ),
        (
            {"kind": "topic_quota", "level": None, "entity": {}},
            "A topic may take 2 MB/s. Each produce to it waits",
            "Produce limit of a topic",
        ),
        (
            {"kind": "topic_quota", "quota": "consumer_byte_rate", "level": None, "entity": {}},
            "A topic gives 2 MB/s. Each fetch of it waits",
            "Consume limit of a topic",
        ),
        (
            {"level": None, "entity": {}},
            "Clients chosen by the operator may produce 2 MB/s (level: operator).",
            "Produce quota of clients chosen by the operator",
        ),
    ],
)
def test_the_cause_of_a_delay_is_shown_in_its_unit(
    entry: dict[str, object],
    sentence: str,
    row: str,
    ida: Client,
    instance: Instance,
    observation: FakeObservation,
) -> None:
    observation.entries = (throttle(**entry),)

    assert sentence in text_of(ida.get(reverse("page-why", args=[instance.pk])))
    assert row in text_of(ida.get(reverse("page-throttle", args=[instance.pk])))
