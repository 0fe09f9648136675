"""Hanging transactions: their detection, and their end by operators."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from brokers.dataplane import transactions
from brokers.dataplane.scatter import ScatterResult
from brokers.limits import HANGING_SCAN_PARTITIONS_MAX, HANGING_UNKNOWN_AFTER_MS
from brokers.models import Cluster
from brokers.monitoring import cluster_overview
from brokers.transactions import hanging
from instances import interfaces
from instances.groups.interfaces import ProducerState
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.actors import system_actor
from tenants.errors import Conflict, OutcomeUnknown, Unavailable
from tenants.models import AuditEntry
from tests.testkit.api_cases import Api, assert_problem, make_member, make_tenant
from tests.testkit.fake_transactions import FakeClusterTransactions
from tests.testkit.fleet import make_fleet, make_running, place, plugged

pytestmark = pytest.mark.django_db

OPERATOR = system_actor("ida@penstock.example")


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with plugged(interfaces.reconcile, lambda _instance_id: None):
        yield make_fleet(tmp_path)


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    running = make_running(make_tenant())
    place(running, cluster)
    return running


@pytest.fixture()
def admin_client(monkeypatch: pytest.MonkeyPatch, instance: Instance) -> FakeClusterTransactions:
    """Fake transactions of `orders`, which has five partitions, all in the first page of the search."""
    result = FakeClusterTransactions()
    monkeypatch.setattr(hanging, "ClusterTransactions", lambda _cluster: result)
    lines = [{"topic": f"{instance.pk}.orders", "partition": index} for index in range(5)]

    def page(_cluster: Cluster, *, after: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        return lines[:limit], ""

    monkeypatch.setattr(cluster_overview, "partition_page", page)
    return result


def ago(milliseconds: int) -> int:
    return time.time_ns() // 1_000_000 - milliseconds


def an_operator() -> Api:
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    return Api.of(member, ["operator"])


HOUR = 3_600_000
OLD = HANGING_UNKNOWN_AFTER_MS + 60_000


def test_only_what_is_past_its_time_out_is_overdue(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    orders = (f"{instance.pk}.orders", 0)
    admin_client.add(f"{instance.pk}.late", orders, producer_id=1, started_ms=ago(HOUR))
    admin_client.add(f"{instance.pk}.stuck", orders, producer_id=2, started_ms=ago(2 * HOUR), state="PrepareCommit")
    admin_client.add(f"{instance.pk}.young", orders, producer_id=3, started_ms=ago(70_000))
    admin_client.add(f"{instance.pk}.done", producer_id=4, started_ms=ago(HOUR), state="CompleteCommit")
    admin_client.silent = (BrokerUnresponsive(broker_id=3, reason="does not answer"),)
    result = hanging.list_overdue(cluster)
    assert [(row.shown_id, row.instance_id, row.is_decided) for row in result.rows] == [
        ("stuck", instance.pk, True),
        ("late", instance.pk, False),
    ]
    assert result.silent[0].broker_id == 3


def test_a_coordinator_that_lists_a_transaction_and_tells_no_more_of_it_is_named(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    """Otherwise an unknown state would look like none overdue."""
    admin_client.add(f"{instance.pk}.quiet", producer_id=1, started_ms=ago(HOUR))
    admin_client.unresponsive_ids.add(f"{instance.pk}.quiet")
    result = hanging.list_overdue(cluster)
    assert result.rows == ()
    assert [item.broker_id for item in result.silent] == [1]


def test_long_open_transactions_within_their_time_outs_hide_none_that_is_overdue(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "HANGING_DESCRIBED_AT_ONCE", 2)
    for number in range(4):
        admin_client.add(f"{instance.pk}.a-{number}", producer_id=number, started_ms=ago(70_000))
    admin_client.add(f"{instance.pk}.late", producer_id=9, started_ms=ago(HOUR))
    assert [row.shown_id for row in hanging.list_overdue(cluster).rows] == ["late"]


def test_a_transaction_on_a_silent_broker_is_not_reported_as_ended(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    topic = f"{instance.pk}.orders"
    admin_client.add(f"{instance.pk}.quiet", (topic, 0), producer_id=1, started_ms=ago(HOUR))
    admin_client.unresponsive_ids.add(f"{instance.pk}.quiet")
    with pytest.raises(Unavailable, match="coordinator does not answer"):
        hanging.abort_overdue(acting=OPERATOR, cluster=cluster, transactional_id=f"{instance.pk}.quiet")
    admin_client.unresponsive_partitions.add((topic, 0))
    with pytest.raises(Unavailable, match="no leader that answers"):
        orphan(cluster, topic, producer_id=1)
    assert (admin_client.fenced, admin_client.aborted) == ([], [])


def test_an_orphan_is_open_for_long_and_known_to_no_coordinator(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    topic = f"{instance.pk}.orders"
    admin_client.write((topic, 0), producer_id=1, at_ms=ago(OLD))  # nobody knows its producer
    admin_client.write((topic, 1), producer_id=2, at_ms=ago(OLD))  # in an open transaction of its coordinator
    admin_client.add(f"{instance.pk}.known", (topic, 1), producer_id=2, started_ms=ago(OLD))
    admin_client.write(
        (topic, 2), producer_id=3, at_ms=ago(OLD)
    )  # its coordinator has closed it without this partition
    admin_client.add(f"{instance.pk}.closed", producer_id=3, started_ms=-1, state="CompleteAbort")
    admin_client.write((topic, 3), producer_id=4, at_ms=ago(1_000))  # young
    admin_client.write((topic, 4), producer_id=5, at_ms=ago(OLD), first_offset=None)  # nothing open
    result = hanging.scan_orphans(cluster)
    assert [(row.topic_partition, row.instance_id) for row in result.rows] == [
        ((topic, 0), instance.pk),
        ((topic, 2), instance.pk),
    ]
    assert (result.looked_at, result.unanswered, result.following) == (5, 0, "")


def test_while_a_coordinator_is_silent_nothing_is_called_an_orphan(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    topic = f"{instance.pk}.orders"
    admin_client.write((topic, 0), producer_id=1, at_ms=ago(OLD))
    admin_client.add(f"{instance.pk}.quiet", (topic, 0), producer_id=1, started_ms=ago(OLD))
    admin_client.unresponsive_ids.add(f"{instance.pk}.quiet")
    admin_client.unresponsive_partitions.add((topic, 1))
    result = hanging.scan_orphans(cluster)
    assert result.rows == ()
    assert [item.broker_id for item in result.silent] == [1]
    assert result.unanswered == 1
    with pytest.raises(Conflict, match="may know"):
        orphan(cluster, topic, producer_id=1)
    assert admin_client.aborted == []


def orphan(cluster: Cluster, topic: str, *, producer_id: int, transaction_start_offset: int = 7) -> None:
    hanging.abort_orphan(
        acting=OPERATOR,
        cluster=cluster,
        topic=topic,
        partition=0,
        producer_id=producer_id,
        transaction_start_offset=transaction_start_offset,
    )


def test_partitions_are_looked_through_in_parts(
    cluster: Cluster, admin_client: FakeClusterTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def page(_cluster: Cluster, *, after: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        asked.append(after)
        first = int(after.rpartition("/")[2] or -1) + 1
        return [
            {"topic": "wide", "partition": index} for index in range(first, first + limit)
        ], f"wide/{first + limit - 1}"

    monkeypatch.setattr(cluster_overview, "partition_page", page)
    result = hanging.scan_orphans(cluster)
    assert result.looked_at == HANGING_SCAN_PARTITIONS_MAX
    assert result.following == f"wide/{HANGING_SCAN_PARTITIONS_MAX - 1}"
    assert asked[:2] == ["", "wide/499"]
    assert (
        hanging.scan_orphans(cluster, after=result.following).following == f"wide/{2 * HANGING_SCAN_PARTITIONS_MAX - 1}"
    )


def test_an_overdue_one_is_aborted_by_fencing_its_producer(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    named = f"{instance.pk}.late"
    admin_client.add(named, (f"{instance.pk}.orders", 0), producer_id=1, started_ms=ago(HOUR))
    hanging.abort_overdue(acting=OPERATOR, cluster=cluster, transactional_id=named, dry_run=True)
    assert admin_client.fenced == []
    hanging.abort_overdue(acting=OPERATOR, cluster=cluster, transactional_id=named)
    assert admin_client.fenced == [named]
    entry = AuditEntry.objects.filter(action="transaction.aborted").first()
    assert entry is not None
    assert (entry.tenant, entry.target_id) == (instance.tenant, f"{instance.pk}/late")
    with pytest.raises(Conflict, match="has ended"):
        hanging.abort_overdue(acting=OPERATOR, cluster=cluster, transactional_id=named)


def test_a_decided_transaction_is_never_aborted(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    """TXN-11: the outcome is fixed once it is prepared."""
    named = f"{instance.pk}.stuck"
    admin_client.add(named, producer_id=1, started_ms=ago(HOUR), state="PrepareCommit")
    with pytest.raises(Conflict, match="decided"):
        hanging.abort_overdue(acting=OPERATOR, cluster=cluster, transactional_id=named)
    assert admin_client.fenced == []


def test_an_orphan_is_aborted_once_and_only_as_it_was_seen(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    topic = f"{instance.pk}.orders"
    admin_client.write((topic, 0), producer_id=1, at_ms=ago(OLD))
    with pytest.raises(Conflict, match="has ended"):
        orphan(cluster, topic, producer_id=1, transaction_start_offset=99)
    orphan(cluster, topic, producer_id=1)
    assert [(item.producer_id, item.transaction_start_offset) for item in admin_client.aborted] == [(1, 7)]
    with pytest.raises(Conflict, match="has ended"):
        orphan(cluster, topic, producer_id=1)
    entry = AuditEntry.objects.get(action="transaction.aborted")
    assert (entry.target_id, (entry.after or {})["topic"]) == (f"{instance.pk}/orders/0", "orders")
    admin_client.write((topic, 0), producer_id=2, at_ms=ago(OLD))
    admin_client.add(f"{instance.pk}.back", (topic, 0), producer_id=2, started_ms=ago(OLD))
    with pytest.raises(Conflict, match="knows of"):
        orphan(cluster, topic, producer_id=2)


def test_an_abort_that_nobody_answered_stays_in_the_ledger(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions, panel: Client
) -> None:
    """The audit row is the tenant's only way to learn who ended its transaction."""
    topic, admin_client.is_lost = f"{instance.pk}.orders", True
    admin_client.add(f"{instance.pk}.late", (topic, 0), producer_id=1, started_ms=ago(HOUR))
    admin_client.write((topic, 0), producer_id=9, at_ms=ago(OLD))
    api, root = an_operator(), f"/operator/clusters/{cluster.pk}/transactions"
    by_id = assert_problem(api.post(f"{root}/abort", {"id": f"{instance.pk}.late"}), 503, "outcome_unknown")
    body = {"topic": topic, "partition": "0", "producer_id": "9", "started_at": "7"}
    page = panel.post(reverse("admin:brokers_abort_orphan", args=[cluster.pk]), body, follow=True)
    assert "No broker has said" in page.content.decode()
    entries = AuditEntry.objects.filter(action="transaction.aborted", tenant=instance.tenant).order_by("time", "id")
    assert [(entry.target_id, (entry.after or {})["outcome"]) for entry in entries] == [
        (f"{instance.pk}/late", "unknown"),
        (f"{instance.pk}/orders/0", "unknown"),
    ]
    assert entries[0].request_id == by_id["request_id"]


def test_a_marker_that_may_have_reached_its_leader_is_of_unknown_outcome(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = ProducerState(
        topic="t", partition=0, producer_id=9, producer_epoch=2, last_sequence=9, last_timestamp_ms=0,
        coordinator_epoch=0, transaction_start_offset=7,
    )  # fmt: skip
    monkeypatch.setattr(transactions, "_leaders", lambda _asked, places: {1: list(places)})
    for may_be_executed, raised in ((True, OutcomeUnknown), (False, Unavailable)):
        lost = ScatterResult(responses=(), silent=(), may_be_executed=may_be_executed)
        monkeypatch.setattr(transactions, "scatter", lambda *_, lost=lost, **__: lost)
        with pytest.raises(Unavailable) as message:
            transactions.ClusterTransactions(cluster).abort(producer)
        assert type(message.value) is raised


# --- the panel and REST -----------------------------------------------------------------------------------------------


def test_the_panel_shows_and_aborts(
    panel: Client, cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    topic = f"{instance.pk}.orders"
    admin_client.add(f"{instance.pk}.late", (topic, 0), producer_id=1, started_ms=ago(HOUR))
    admin_client.write((topic, 3), producer_id=9, at_ms=ago(OLD), first_offset=1_234)
    at = reverse("admin:brokers_transactions", args=[cluster.pk])
    page = panel.get(at).content.decode()
    assert ">late<" in page and instance.pk in page and "Looked through" not in page
    page = panel.get(f"{at}?look=").content.decode()
    assert "Looked through 5 partitions." in page and 'value="1234"' in page
    body = {"topic": topic, "partition": "3", "producer_id": "9", "started_at": "1234"}
    done = panel.post(reverse("admin:brokers_abort_orphan", args=[cluster.pk]), body, follow=True)
    assert "Aborted on this partition." in done.content.decode()
    done = panel.post(
        reverse("admin:brokers_abort_overdue", args=[cluster.pk]), {"id": f"{instance.pk}.late"}, follow=True
    )
    assert "Its producer must begin anew." in done.content.decode()
    again = panel.post(
        reverse("admin:brokers_abort_overdue", args=[cluster.pk]), {"id": f"{instance.pk}.late"}, follow=True
    )
    assert "has ended" in again.content.decode()
    odd = panel.post(reverse("admin:brokers_abort_orphan", args=[cluster.pk]), {"topic": topic}, follow=True)
    assert "There is no such partition." in odd.content.decode()
    assert at in panel.get(reverse("admin:brokers_cluster_changelist")).content.decode()


def test_nobody_but_operators_sees_or_ends_them(cluster: Cluster, admin_client: FakeClusterTransactions) -> None:
    tenant = Client()
    tenant.force_login(make_member().user)
    for name in ("brokers_transactions", "brokers_abort_overdue", "brokers_abort_orphan"):
        assert tenant.get(reverse(f"admin:{name}", args=[cluster.pk])).status_code == 302
    api = Api.of(make_member())
    root = f"/operator/clusters/{cluster.pk}/transactions"
    for answer in (api.get(f"{root}/overdue"), api.get(f"{root}/orphans"), api.post(f"{root}/abort", {"id": "x"})):
        assert_problem(answer, 403, "permission_denied")


def test_operators_list_and_abort_over_rest(
    cluster: Cluster, instance: Instance, admin_client: FakeClusterTransactions
) -> None:
    api = an_operator()
    topic, root = f"{instance.pk}.orders", f"/operator/clusters/{cluster.pk}/transactions"
    admin_client.add(f"{instance.pk}.late", (topic, 0), producer_id=1, started_ms=ago(HOUR))
    admin_client.write((topic, 3), producer_id=9, at_ms=ago(OLD))
    (late,) = json.loads(api.get(f"{root}/overdue").content)["items"]
    assert (late["id"], late["partitions"]) == (f"{instance.pk}.late", [{"topic": topic, "partition": 0}])
    result = json.loads(api.get(f"{root}/orphans").content)
    assert [(item["partition"], item["first_offset"]) for item in result["items"]] == [(3, 7)]
    assert (result["looked_at"], result["next"]) == (5, None)
    assert_problem(api.post(f"{root}/abort", {"topic": topic}), 400)
    assert_problem(api.post(f"{root}/abort", {"id": "x", "topic": topic}), 400)
    assert_problem(api.post(f"{root}/abort", {"id": "x"}), 409, "not_hanging")
    assert api.post(f"{root}/abort?dry_run=true", {"id": late["id"]}).status_code == 204
    assert admin_client.fenced == []
    assert api.post(f"{root}/abort", {"id": late["id"]}).status_code == 204
    orphan_body = {"topic": topic, "partition": 3, "producer_id": 9, "first_offset": 7}
    assert api.post(f"{root}/abort", orphan_body).status_code == 204
    assert len(admin_client.aborted) == 1
    assert_problem(api.get("/operator/clusters/clu-00000000/transactions/overdue"), 404)
