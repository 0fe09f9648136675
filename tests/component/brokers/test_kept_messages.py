"""Sentences with values in rows of jobs: shown in the reader's language, in English for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.db import connection
from django.utils.translation import override

from brokers.choices import FleetOperationType
from brokers.models import FleetOperation, RollingRestart
from brokers.operations import fleet_operations
from brokers.rebalancing.model import Obstacle
from tenants.actors import system_actor
from tenants.errors import Message
from tenants.message_field import entries, entry
from tenants.wording import localized
from tests.testkit.fleet import make_fleet

STARTING = Message("Broker %(id)s is starting.", id=3)
NESTED = Obstacle(owner=None, topic="ins-1.orders", detail=Message("It answered less than %(limit)s s ago.", limit=60))


@pytest.fixture()
def row(db: None, tmp_path: Path) -> RollingRestart:
    return RollingRestart.objects.create(cluster=make_fleet(tmp_path), numbers=[1], asked_by="ops@example.com")


def kept(row: RollingRestart, trouble: str) -> str:
    RollingRestart.objects.filter(pk=row.pk).update(trouble=trouble)
    row.refresh_from_db()
    return row.trouble


def column(row: RollingRestart) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT trouble FROM {RollingRestart._meta.db_table} WHERE id = %s", [row.pk])
        (text,) = cursor.fetchone()
    return str(text)


@pytest.mark.parametrize("message", [STARTING, NESTED.sentence], ids=["plain", "nested"])
def test_a_kept_message_has_its_id_and_its_values(row: RollingRestart, message: Message) -> None:
    result = kept(row, message)
    assert isinstance(result, Message)
    assert (result, result.msgid, result.values) == (message, message.msgid, message.values)
    assert column(row).startswith(str(message)), "readable in the database as well"
    with override("zh-hans"):
        assert localized(result) == localized(message) != message


@pytest.mark.parametrize("text", ["", "There is no controller.", "as an earlier version wrote: 3", "with\x1fseparator"])
def test_a_plain_text_stays_one(row: RollingRestart, text: str) -> None:
    result = kept(row, text)
    assert type(result) is str
    assert result == text.replace("\x1f", " ")


def test_a_sentence_too_long_for_the_column_is_cut_to_plain_text(row: RollingRestart) -> None:
    result = kept(row, Message("Not at the moment: %(why)s.", why="x" * 10_000))
    assert type(result) is str
    assert result == f"Not at the moment: {'x' * 481}"


def test_a_value_cannot_pass_for_the_body_of_a_message(row: RollingRestart) -> None:
    """Names of topics and words of brokers are foreign text."""
    hostile = 'x\x1f{"id": "%(n)s", "values": {"n": "forged"}}'
    result = kept(row, Message("Not at the moment: %(why)s.", why=hostile))
    assert isinstance(result, Message)
    assert result.values == {"why": hostile}
    assert type(kept(row, hostile)) is str


@pytest.mark.parametrize("message", [STARTING, NESTED.sentence], ids=["plain", "nested"])
def test_a_document_keeps_the_id_and_the_values_of_a_message(message: Message) -> None:
    document = json.loads(json.dumps(entries("fact", message)))
    result = entry(document, "fact")
    assert document["fact"] == message
    assert isinstance(result, Message)
    assert (result, result.msgid, result.values) == (message, message.msgid, message.values)


def test_a_document_keeps_plain_and_cut_sentences_as_text() -> None:
    assert entry(entries("fact", "3 of 3"), "fact") == "3 of 3"
    assert entry({"fact": "as an earlier version wrote: 3"}, "fact") == "as an earlier version wrote: 3"
    cut = entry(entries("fact", STARTING, chars_max=6), "fact")
    assert (type(cut), cut) == (str, "Broker")


@pytest.mark.django_db
def test_why_a_step_waits_is_shown_in_the_readers_language(tmp_path: Path) -> None:
    acting = system_actor("test")
    operation = fleet_operations.begin(acting, make_fleet(tmp_path), FleetOperationType.FORM)
    fleet_operations.record_failure_reason(operation, STARTING)
    step = next(step for step in FleetOperation.objects.get(pk=operation.pk).steps if step["state"] == "running")
    assert step["fact"] == STARTING
    with override("zh-hans"):
        assert localized(entry(step, "fact")) == localized(STARTING) != STARTING
    fleet_operations.record_failure_reason(operation, "ZooKeeper does not answer.")
    step = next(step for step in FleetOperation.objects.get(pk=operation.pk).steps if step["state"] == "running")
    assert type(entry(step, "fact")) is str
