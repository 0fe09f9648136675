"""Acts of Kafka clients in the audit log: on its page, in the CSV and over REST, beside those of people."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone, translation

from brokers.auditing.rows import audit_entries_of
from brokers.contract.audit import SEVERAL, UNKNOWN, AuditEvent, AuditItem
from instances.models import Instance
from tenants import audit
from tenants.audit_words import sentence_of
from tenants.limits import AUDIT_CLIENT_ROWS_KEPT_DAYS
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, make_member


def event(instance: Instance, *items: AuditItem, **fields: Any) -> AuditEvent:
    known: dict[str, Any] = {
        "id": "0123456789abcdef",
        "broker_id": 1,
        "instance_id": instance.pk,
        "at_ms": 1_700_000_000_000,
        "until_ms": 1_700_000_060_000,
        "user": "reader",
        "address": "10.0.0.9",
        "client_id": "terraform",
        "route": "default",
        "items": items,
    }
    return AuditEvent(**(known | fields))


def item(action: str, kind: str, name: str, **values: Any) -> AuditItem:
    return AuditItem(action=action, kind=kind, name=name, **values)


CREATED = item("topic.created", "topic", "orders", after={"partitions": 3, "replication_factor": 2, "config": {}})
RULE = {"permission": "allow", "principal": "User:alice", "operation": "read"}
SENTENCES = [
    (CREATED, {}, "created topic orders (3 partitions)"),
    (item("topic.created", "topic", "orders", after={"partitions": 1, "automatically": True}), {},
     "created topic orders (1 partition) by using it"),
    (item("topic.deleted", "topic", "orders", before={"partitions": 3}), {}, "deleted topic orders"),
    (item("topic.changed", "topic", "orders", before={"partitions": 3}, after={"partitions": 5}), {},
     "grew topic orders from 3 to 5 partitions"),
    (item("topic.changed", "topic", "orders", before={"config": {}}, after={"config": {"retention.ms": "1"}}), {},
     "configured topic orders: retention.ms"),
    (item("topic.records_deleted", "topic", "orders", after={"partitions": 2}), {},
     "deleted records of 2 partitions of topic orders"),
    (item("group.offsets_committed", "group", "etl", after={"partitions": 1}), {},
     "set offsets of group etl for 1 partition"),
    (item("group.offsets_committed", "group", "etl", after={"partitions": 1}), {"requests": 720},
     "set offsets of group etl for 1 partition, 720 times"),
    (item("group.offsets_deleted", "group", "etl", before={"partitions": 2}), {},
     "deleted offsets of group etl for 2 partitions"),
    (item("group.deleted", "group", "etl"), {}, "deleted group etl"),
    (item("user.created", "user", "alice"), {}, "created user alice"),
    (item("user.deleted", "user", "alice"), {}, "deleted user alice"),
    (item("user.credentials_changed", "user", "alice"), {}, "changed the password of user alice"),
    (item("acl.created", "acl", "topic/orders", after=RULE), {},
     "made an access rule: allow User:alice read on topic/orders"),
    (item("acl.deleted", "acl", "topic/orders", before=RULE), {},
     "deleted an access rule: allow User:alice read on topic/orders"),
    (item("quota.set", "quota", "users/alice", after={"producer_byte_rate": 1024.0}), {},
     "limited users/alice: producer_byte_rate 1024"),
    (item("quota.removed", "quota", "users/alice"), {}, "took the limits of users/alice away"),
    (item("client.sign_in_failed", "user", "reader", after={"mechanism": "PLAIN"}), {"requests": 127},
     "127 failed sign-ins"),
    (item("client.sign_in_failed", "user", "", after={"mechanism": "TLS", "reason": "revoked"}), {"requests": 3},
     "3 failed sign-ins: the certificate is revoked"),
    (item("client.sign_in_failed", "user", "", after={"mechanism": "TLS", "reason": "of a later version"}), {},
     "1 failed sign-in"),
    (item("client.sign_in_refused", "user", "reader"), {"requests": 1},
     "1 sign-in refused after too many failed ones"),
    (item("client.denied", "topic", "", after={"names": ["orders"], "asked": "topic.deleted"}), {"requests": 2},
     "has no right to: topic.deleted of orders (2 requests)"),
    (item("client.denied", "acl", "", after={"asked": "acl.deleted"}), {},
     "has no right to: acl.deleted (1 request)"),
    (item("topic.created", "topic", "", after={"names": ["a", "b", "c", "d"]}), {"requests": 500},
     "500 requests of this kind, among them a, b, c, …"),
    (item("topic.deleted", "topic", "orders", outcome=UNKNOWN), {},
     "deleted topic orders; nobody knows whether it was done"),
    (item("thing.of_a_later_version", "topic", "orders"), {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("done", "fields", "sentence"), SENTENCES, ids=lambda value: str(value)[:40])
def test_each_thing_is_a_sentence(instance: Instance, done: AuditItem, fields: dict[str, Any], sentence: str) -> None:
    (row,) = audit_entries_of(event(instance, done, **fields), instance)
    assert sentence_of(row) == sentence
    with translation.override("zh-hans"):
        assert (sentence_of(row) != sentence) == bool(sentence)


def test_the_page_says_who_did_what_and_from_where(ida: Client, instance: Instance) -> None:
    audit.append(audit_entries_of(event(instance, CREATED), instance))
    page = ida.get("/audit/?q=10.0.0.9").content.decode()
    for words in ("reader", "Kafka client · 10.0.0.9", "created topic orders (3 partitions)", "topic.created"):
        assert words in page
    assert "instance.created" not in page
    assert "instance.created" in ida.get("/audit/").content.decode()


def test_the_csv_has_them_with_their_context(ida: Client, instance: Instance) -> None:
    audit.append(audit_entries_of(event(instance, CREATED), instance))
    lines = b"".join(ida.get("/audit.csv?q=topic.created")).decode().splitlines()  # type: ignore[call-overload]
    (row,) = csv.DictReader(lines)
    assert (row["actor_kind"], row["actor"], row["ip"]) == ("client", "reader", "10.0.0.9")
    assert json.loads(row["context"]) == {"broker": 1, "client_id": "terraform", "route": "default"}


def test_rest_finds_them_by_kind_actor_and_address(owner: Member, instance: Instance) -> None:
    audit.append(audit_entries_of(event(instance, CREATED, requests=3, more=7, failed=1), instance))
    api = Api.of(owner)
    for query in ("actor_kind=client", f"actor_id={instance.pk}/users/reader", "ip=10.0.0.9"):
        rest, row = api.get(f"/audit?{query}").json()["items"]
        if row["target"]["type"] == "instance":
            rest, row = row, rest
        assert row["target"] == {"type": "topic", "id": f"{instance.pk}/orders"}
        assert (row["context"]["requests"], row["context"]["more"], row["context"]["failed"]) == (3, 7, 1)
        assert row["context"]["until"] == "2023-11-14T22:14:20+00:00"
        assert (rest["target"]["id"], rest["after"]) == (instance.pk, {"more": 7})
    assert api.get("/audit?actor_kind=nobody").status_code == 400
    assert Api.of(make_member()).get("/audit?actor_kind=client").json()["items"] == []


def test_names_chosen_by_clients_fit_in_any_spelling(owner: Member, instance: Instance) -> None:
    """Names with U+0000, with half a surrogate pair, and longer than the column."""
    names = ("a\x00b", "half \ud800", "x" * 5_000)
    kinds = ("topic", "group", "user", "acl", "quota", "thing")
    items = [item("group.deleted", kind, name, after={name[:9]: [name]}) for name in names for kind in kinds]
    audit.append(
        audit_entries_of(event(instance, *items, user="u\x00", address="nowhere", client_id="c\x00"), instance)
    )
    result = Api.of(owner).get("/audit?actor_kind=client&page_size=50").json()["items"]
    assert len(result) == len(items)
    assert {row["ip"] for row in result} == {None}


def test_users_that_are_not_named_have_a_label(instance: Instance) -> None:
    failed = item("client.sign_in_failed", "user", "")
    labels = [audit_entries_of(event(instance, failed, user=user), instance)[0].actor_label for user in ("", SEVERAL)]
    assert labels == ["unknown user", "several"]


def _aged(instance: Instance, days: float) -> AuditEntry:
    at_ms = round((timezone.now() - timedelta(days=days)).timestamp() * 1000)
    (row,) = audit_entries_of(event(instance, CREATED, at_ms=at_ms), instance)
    audit.append([row])
    return row


def test_rows_of_clients_go_after_a_year_and_those_of_people_stay(owner: Member, instance: Instance) -> None:
    young = _aged(instance, AUDIT_CLIENT_ROWS_KEPT_DAYS - 1)
    old = _aged(instance, AUDIT_CLIENT_ROWS_KEPT_DAYS + 1)
    persons = AuditEntry.objects.exclude(actor_kind="client").count()
    assert audit.delete_expired_client_entries(timezone.now()) == 1
    assert set(AuditEntry.objects.filter(actor_kind="client").values_list("pk", flat=True)) == {young.pk}
    assert old.pk != young.pk
    assert AuditEntry.objects.exclude(actor_kind="client").count() == persons


def test_the_database_keeps_the_young_ones_against_everybody(instance: Instance) -> None:
    _aged(instance, 1)
    for statement in (
        "DELETE FROM tenants_auditentry WHERE actor_kind = 'client'",
        "UPDATE tenants_auditentry SET actor_kind = 'client', time = '2000-01-01'",
    ):
        with (
            pytest.raises(DatabaseError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
