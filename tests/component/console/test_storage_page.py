"""The page of stored bytes, the form for a full instance, and the sentences about both."""

from __future__ import annotations

import html

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances import services
from instances.choices import ConditionType
from instances.interfaces import BrokerUnresponsive
from instances.lifecycle.conditions import Observation, ShortenedRetention, after_growth_refused
from instances.limits import STORAGE_SAMPLE_EVERY_S, STORAGE_TOPICS_PER_PAGE
from instances.metrics import storage_history
from instances.models import Instance
from instances.views.storage import approximate_duration
from tenants.models import User
from tests.component.console.fakes import FakeDataPlane, FakeObservation


@pytest.fixture(autouse=True)
def no_samples() -> None:
    cache.clear()


def page_of(client: Client, instance: Instance, query: str = "") -> str:
    answer = client.get(reverse("page-storage", args=[instance.pk]) + query)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def make_topics(data_plane: FakeDataPlane, instance: Instance, count: int) -> None:
    for number in range(count):
        data_plane.create_topic(
            instance.pk, f"many-{number:03d}", partitions=1, replication_factor=3, config={}, validate_only=False
        )


def test_each_topic_is_shown_with_what_it_stores(ida: Client, instance: Instance, observation: FakeObservation) -> None:
    page = page_of(ida, instance)

    assert "orders.created" in page
    assert "When it is full is not known yet" in page
    assert "When it is full, produce is refused." in page


def test_many_topics_come_in_pages(
    ida: Client, instance: Instance, data_plane: FakeDataPlane, observation: FakeObservation
) -> None:
    make_topics(data_plane, instance, STORAGE_TOPICS_PER_PAGE + 10)

    page = page_of(ida, instance, "?q=many")

    assert page.count('class="name mono"') == STORAGE_TOPICS_PER_PAGE
    assert "page_token=" in page
    assert page_of(ida, instance, "?q=many-003").count('class="name mono"') == 1


def test_the_forecast_has_one_unit(ida: Client, instance: Instance, observation: FakeObservation) -> None:
    step_bytes = instance.storage_bytes // 1_000
    for number in range(40):
        storage_history.record_samples({instance.pk: step_bytes * number}, number * STORAGE_SAMPLE_EVERY_S * 1_000)

    assert "Full in about 33 hours" in page_of(ida, instance)


def test_spans_have_one_unit() -> None:
    assert [approximate_duration(seconds) for seconds in (1, 60, 7_100, 7_200, 172_000, 172_800, 300_000)] == [
        "1 minute",
        "1 minute",
        "118 minutes",
        "2 hours",
        "48 hours",
        "2 days",
        "3 days",
    ]


def test_a_silent_broker_is_named_beside_the_figures(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.silent = (BrokerUnresponsive(broker_id=2, reason="does not answer"),)

    assert ida.get(reverse("page-storage", args=[instance.pk])).status_code == 503


def test_form_stores_what_is_chosen(ida: Client, instance: Instance) -> None:
    values = {
        "part": "storage", "storage_when_full": "shrink_retention", "storage_retention_minutes_min": "90",
        "storage_grow_step_gb": "", "storage_grow_max_gb": "",
    }  # fmt: skip

    assert ida.post(reverse("page-instance-settings", args=[instance.pk]), values).status_code == 302

    instance.refresh_from_db()
    assert instance.settings["storage_when_full"] == "shrink_retention"
    assert instance.settings["storage_retention_minutes_min"] == 90
    assert instance.settings["storage_grow_step_gb"] is None
    assert "none younger than 90 min" in page_of(ida, instance)


@pytest.mark.parametrize(
    ("language", "words"), [("en", "Say how far it may grow, in GB."), ("zh-hans", "请填写最多扩容到多少 GB。")]
)
def test_refusal_stands_beside_its_field_in_the_readers_language(
    language: str, words: str, ida: Client, instance: Instance
) -> None:
    User.objects.update(language=language)
    values = {
        "part": "storage", "storage_when_full": "stop", "storage_retention_minutes_min": "60",
        "storage_grow_step_gb": "5", "storage_grow_max_gb": "",
    }  # fmt: skip

    answer = ida.post(reverse("page-instance-settings", args=[instance.pk]), values)

    assert answer.status_code == 422
    assert words in html.unescape(answer.content.decode())


def test_shortened_retention_names_topics_and_what_is_kept(ida: Client, instance: Instance) -> None:
    shortened = ShortenedRetention(topics=(("orders.created", 1_790_000_000_000),))
    services.record_health(instance.pk, Observation(shortened=shortened, at=timezone.now()))

    page = html.unescape(ida.get(reverse("page-why", args=[instance.pk])).content.decode())

    assert "Oldest records were deleted before their time" in page
    assert "orders.created from" in page
    services.record_health(instance.pk, Observation(shortened=ShortenedRetention(), at=timezone.now()))
    assert "before their time" not in ida.get(reverse("page-why", args=[instance.pk])).content.decode()


def test_growth_that_was_refused_says_why(ida: Client, instance: Instance) -> None:
    instance.conditions = after_growth_refused([], "no_room", "No plan on sale is that large.", timezone.now())
    assert instance.conditions[0]["type"] == ConditionType.STORAGE_GROWS
    Instance.objects.filter(pk=instance.pk).update(conditions=instance.conditions)

    page = html.unescape(ida.get(reverse("page-why", args=[instance.pk])).content.decode())

    assert "Storage was to grow by itself and could not" in page
    assert "No plan on sale is that large." in page
