"""Copies of topics in the console: begun on the clone's page, followed and stopped below the list."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances.copying import turns
from instances.copying.interfaces import record_log
from instances.copying.models import TopicCopy
from instances.models import Instance
from tenants.errors import QuotaExceeded
from tenants.models import Member
from tests.component.console.fakes import FakeDataPlane
from tests.testkit.fake_records import FakeRecords

TOPIC, COPY = "orders.created", "orders.copy"


@pytest.fixture
def kept_records(data_plane: FakeDataPlane, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> FakeRecords:
    result = FakeRecords(data_plane)
    monkeypatch.setattr(record_log, "_plugged", result)
    result.fill(instance.pk, TOPIC, 5)
    return result


def at(page: str, instance: Instance, *names: str) -> str:
    return reverse(page, args=[instance.pk, *names])


def begin(client: Client, instance: Instance) -> str:
    return client.post(
        at("page-topic-clone", instance, TOPIC), {"name": COPY, "records": "on"}, follow=True
    ).content.decode()


def turn() -> None:
    for copy_id in turns.due_copies():
        turns.run_turn(copy_id, deadline_s=time.monotonic() + 60, now=timezone.now())


def test_a_copy_is_begun_on_the_page_of_the_clone_and_followed_below_the_list(
    ida: Client, instance: Instance, kept_records: FakeRecords
) -> None:
    form = ida.get(at("page-topic-clone", instance, TOPIC)).content.decode()
    assert "With the messages that it has now: 30" in form
    assert "Copied in the background at up to" in form
    shown = begin(ida, instance)
    assert f"{TOPIC} is being copied to {COPY}." in shown
    assert f'aria-label="Cancel the copy to {COPY}"' in shown
    turn()
    part = ida.get(at("page-topic-copies", instance)).content.decode()
    assert 'aria-valuenow="100"' in part
    assert "Done" in part
    assert "<html" not in part


def test_a_copy_that_failed_says_why_and_goes_on(ida: Client, instance: Instance, kept_records: FakeRecords) -> None:
    begin(ida, instance)
    kept_records.refused = QuotaExceeded("The storage is full.")
    turn()
    shown = ida.get(at("page-topics", instance)).content.decode()
    assert "The storage is full." in shown
    kept_records.refused = None
    copy = TopicCopy.objects.get()
    going = ida.post(at("page-topic-copy-act", instance, copy.pk, "resume"), follow=True).content.decode()
    assert f"The copy to {COPY} goes on." in going
    said = ida.post(at("page-topic-copy-act", instance, copy.pk, "resume"), follow=True).content.decode()
    assert "Only a copy that failed or was cancelled goes on." in said
    cancelled = ida.post(at("page-topic-copy-act", instance, copy.pk, "cancel"), follow=True).content.decode()
    assert "It keeps the messages copied so far." in cancelled
    assert f'aria-label="Go on with the copy to {COPY}"' in cancelled
    assert ida.post(at("page-topic-copy-act", instance, copy.pk, "burn")).status_code == 404


def test_a_second_copy_is_refused_beside_the_form(ida: Client, instance: Instance, kept_records: FakeRecords) -> None:
    begin(ida, instance)
    refused = ida.post(at("page-topic-clone", instance, TOPIC), {"name": "other", "records": "on"})
    assert refused.status_code == 422
    assert "As many topics are being copied as may at once." in refused.content.decode()


def test_viewers_follow_and_strangers_see_nothing(
    ida: Client, instance: Instance, kept_records: FakeRecords, join: Callable[[str], Member],
    browse: Callable[[Member], Client], stranger: Member,
) -> None:  # fmt: skip
    begin(ida, instance)
    act = at("page-topic-copy-act", instance, TopicCopy.objects.get().pk, "cancel")
    viewer, foreign = browse(join("viewer")), browse(stranger)
    assert "Cancel the copy" not in viewer.get(at("page-topics", instance)).content.decode()
    assert viewer.post(act).status_code == 403
    assert foreign.post(act).status_code == 404
    assert foreign.get(at("page-topic-copies", instance)).status_code == 404
    assert TopicCopy.objects.get().state == "running"
