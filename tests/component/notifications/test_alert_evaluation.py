"""Evaluation of rules over real rows and cached samples: notifications, their recipients and their frequency."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from brokers.models import Cluster, Placement
from brokers.monitoring import cluster_overview, delays, observe
from instances.groups import lag_history
from instances.interfaces import BrokerUnresponsive
from instances.metrics import storage_history
from instances.models import Instance
from notifications import outbox
from notifications.alerts import evaluating, mailing
from notifications.alerts import services as rules
from notifications.budgets import alerts as budget_alerts
from notifications.models import AlertFiring, AlertRule, MailNotice, WebhookDelivery
from notifications.webhooks import delivering
from notifications.webhooks import services as webhooks
from tenants.actors import member_actor
from tenants.choices import Role
from tenants.models import Member, User
from tests.component.notifications.test_webhook_deliveries import sent, verified
from tests.testkit.api_cases import make_member, make_user
from tests.testkit.fleet import make_fleet
from tests.testkit.https_server import HttpsServer, https_server
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GIGABYTE = 10**9


@pytest.fixture(autouse=True)
def _fresh_cache() -> None:
    cache.clear()


@pytest.fixture()
def owner() -> Member:
    member = make_member()
    User.objects.filter(pk=member.user_id).update(email_verified_at=timezone.now())
    return member


@pytest.fixture()
def cluster(tmp_path: Path) -> Cluster:
    """A cluster of three brokers that should run."""
    return make_fleet(tmp_path, name="alerts")


@pytest.fixture()
def instance(owner: Member, cluster: Cluster) -> Instance:
    """An instance of 20 GB on the first two brokers."""
    made = make_instance(owner.tenant, name="orders", endpoints={"1": "127.0.0.1:1", "2": "127.0.0.1:2"})
    Placement.objects.create(instance=made, cluster=cluster, bandwidth_mb_s=5, storage_gb=20)
    return made


def rule_of(owner: Member, instance: Instance, **given: Any) -> AlertRule:
    wanted = {"name": "full soon", "kind": "storage_used", "threshold": 80, "for_minutes": 2, **given}
    return rules.create_rule(acting=member_actor(owner), instance=instance, **wanted)


def store(instance: Instance, gigabytes: int, now: datetime) -> None:
    cache.clear()
    storage_history.record_samples({instance.pk: gigabytes * GIGABYTE}, int(now.timestamp() * 1_000))


def said(rule: AlertRule) -> tuple[str, bool, int | None]:
    rule.refresh_from_db()
    return rule.state, rule.is_unknown, rule.value


def send_mails(now: datetime) -> int:
    return outbox.send_due(now, budgets=budget_alerts.send_mail, alerts=mailing.send)


def fill(owner: Member, instance: Instance, *gigabytes: int) -> datetime:
    """Adds a sample every minute; returns the time of the last one."""
    now = START
    for number, used in enumerate(gigabytes):
        now = START + number * MINUTE
        store(instance, used, now)
        evaluating.evaluate(now)
    return now


def test_rules_that_fire_and_end_at_once_take_as_many_queries_as_one(owner: Member, instance: Instance) -> None:
    taken: list[tuple[int, ...]] = []
    endpoint, _secret = webhooks.create_endpoint(acting=member_actor(owner), url="https://hooks.example.com/")
    for more in (1, 40):
        AlertRule.objects.all().delete()
        for number in range(more):
            rule_of(owner, instance, name=f"rule {more} {number}", for_minutes=0)
        counts = []
        for used in (17, 17, 10, 10, 10, 10):
            now = START + (more + len(counts)) * MINUTE
            store(instance, used, now)
            with CaptureQueriesContext(connection) as queries:
                evaluating.evaluate(now)
            counts.append(len(queries))
        ended = AlertFiring.objects.filter(rule_name__startswith=f"rule {more} ", ended_by="resolved")
        assert ended.count() == more
        taken.append(tuple(counts))
    assert taken[0] == taken[1]
    assert WebhookDelivery.objects.filter(endpoint=endpoint).count() == 2 * 41
    assert MailNotice.objects.count() == 2 * 41


def test_storage_fires_and_is_resolved_and_each_is_said_once_to_who_works_with_instances(
    owner: Member, instance: Instance
) -> None:
    developer, finance = (make_member(role, owner.tenant) for role in (Role.DEVELOPER, Role.FINANCE))
    User.objects.filter(pk__in=[developer.user_id, finance.user_id]).update(email_verified_at=timezone.now())
    rule = rule_of(owner, instance)
    now = fill(owner, instance, 10, 17, 17, 17, 17)
    assert said(rule) == ("firing", False, 85)
    assert send_mails(now) == 1 and send_mails(now + MINUTE) == 0
    assert {message.to[0] for message in mail.outbox} == {owner.user.email, developer.user.email}
    assert mail.outbox[0].subject == "[Penstock] Alert: full soon"
    assert "orders uses 85 % of its storage. The rule's limit: 80 %." in mail.outbox[0].body

    for _ in range(3):
        now += MINUTE
        store(instance, 10, now)
        evaluating.evaluate(now)
    assert said(rule)[0] == "resolved"
    assert send_mails(now) == 1
    assert mail.outbox[-1].subject == "[Penstock] Resolved: full soon"
    firing = AlertFiring.objects.get()
    assert (firing.value, firing.resolved_value, firing.ended_by) == (85, 50, "resolved")
    assert firing.fired_at - firing.pending_at == 2 * MINUTE
    rule.refresh_from_db()
    assert rule.version == 1


def test_old_samples_and_instances_that_do_not_run_are_unknown_and_end_nothing(
    owner: Member, instance: Instance
) -> None:
    rule = rule_of(owner, instance)
    now = fill(owner, instance, 17, 17, 17)
    assert said(rule)[0] == "firing"
    turn = evaluating.evaluate(now + 30 * MINUTE)
    assert turn.unknown == 1 and said(rule) == ("firing", True, 85)
    Instance.objects.update(phase="deleting")
    store(instance, 1, now + 31 * MINUTE)
    evaluating.evaluate(now + 31 * MINUTE)
    assert said(rule) == ("firing", True, 85)
    assert AlertFiring.objects.filter(resolved_at=None).count() == 1


def test_a_group_fires_by_its_lag_in_all_topics_or_in_one(owner: Member, instance: Instance) -> None:
    whole = rule_of(owner, instance, name="all", kind="consumer_lag", threshold=100, group_id="billing")
    part = rule_of(owner, instance, name="one", kind="consumer_lag", threshold=100, group_id="billing", topic="orders")
    rule_of(owner, instance, name="none", kind="consumer_lag", threshold=1, group_id="nobody")
    offsets = {"billing": {("orders", 0): 10, ("orders", 1): 20, ("clicks", 0): 0}}
    ends = {("orders", 0): 50, ("orders", 1): 60, ("clicks", 0): 30}
    lag_history.record_samples(instance.pk, offsets, ends, int(START.timestamp() * 1_000))
    turn = evaluating.evaluate(START)
    assert (said(whole), said(part)) == (("pending", False, 110), ("ok", False, 80))
    assert (turn.evaluated, turn.unknown) == (3, 1)
    assert evaluating.evaluate(START + timedelta(minutes=6)).unknown == 3


def keep_image(cluster: Cluster, now: datetime, *, silent: tuple[int, ...] = (), **counts: int) -> None:
    """Caches a cluster overview in the way of the beat task."""
    share = {"live": True, "leaders": 1, "preferred": 1, "replicas": 1, "out_of_sync": 0}
    rows = [{"id": number, **share} for number in (1, 2, 3)]
    known = dict.fromkeys(cluster_overview.COUNTS, 0) | counts
    body = {"ready": True, "broker_id": 3, "controller_id": 3, "controller_epoch": 1, "brokers": rows, **known}
    answers = observe.BrokerAnswers(
        bodies={3: body}, silent=tuple(BrokerUnresponsive(broker_id=number, reason="") for number in silent)
    )
    cache.set(f"observe:{cluster.pk}:kept", (now, answers), 120)


def test_a_silent_broker_concerns_the_instances_that_it_serves(
    owner: Member, instance: Instance, cluster: Cluster
) -> None:
    rule = rule_of(owner, instance, kind="brokers_silent", threshold=1)
    keep_image(cluster, START, silent=(3,))
    evaluating.evaluate(START)
    assert said(rule) == ("ok", False, 0)
    keep_image(cluster, START + MINUTE, silent=(2, 3))
    evaluating.evaluate(START + MINUTE)
    assert said(rule) == ("pending", False, 1)
    evaluating.evaluate(START + 2 * MINUTE)  # nobody looked since
    assert said(rule) == ("pending", True, 1)


def test_the_throttled_share_counts_whole_minutes_and_knows_which_brokers_did_not_answer(
    owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = rule_of(owner, instance, kind="throttled_share", threshold=50, window_minutes=10)
    minutes = {int((START - number * MINUTE).timestamp() * 1_000): 200 for number in range(1, 6)}
    everybody: Mapping[int, Mapping[str, Any]] = {
        number: {"instances": {instance.pk: list(minutes.items())}} for number in (1, 2, 3)
    }
    monkeypatch.setattr(observe, "query_all", lambda *_: observe.BrokerAnswers(bodies=everybody, silent=()))
    delays.store_delays(START + timedelta(seconds=5))
    evaluating.evaluate(START + timedelta(seconds=30))
    assert said(rule) == ("pending", False, 50)

    # Later on fewer of the last ten minutes had delays; while a broker tells nothing there may have been more.
    nothing: Mapping[str, Any] = {"instances": {}}
    some = {1: nothing, 2: nothing}
    monkeypatch.setattr(observe, "query_all", lambda *_: observe.BrokerAnswers(bodies=some, silent=()))
    later = START + 8 * MINUTE
    delays.store_delays(later)
    evaluating.evaluate(later)
    assert said(rule) == ("pending", True, 50)
    monkeypatch.setattr(
        observe, "query_all", lambda *_: observe.BrokerAnswers(bodies={**some, 3: {"instances": {}}}, silent=())
    )
    delays.store_delays(later)
    evaluating.evaluate(later + timedelta(seconds=30))
    assert said(rule) == ("ok", False, 20)


def test_operators_rules_of_a_cluster_notify_operators_alone(owner: Member, cluster: Cluster) -> None:
    operator = make_user(is_staff=True, email_verified_at=timezone.now())
    counts = AlertRule.objects.create(
        cluster=cluster, name="copies missing", kind="cluster_under_replicated", threshold=5, for_minutes=1
    )
    silent = AlertRule.objects.create(
        cluster=cluster, name="brokers away", kind="cluster_brokers_silent", threshold=1, for_minutes=1
    )
    for number in range(2):
        keep_image(cluster, START + number * MINUTE, under_replicated=7)
        evaluating.evaluate(START + number * MINUTE)
    assert (said(counts), said(silent)) == (("firing", False, 7), ("ok", False, 0))
    send_mails(START + MINUTE)
    assert [message.to for message in mail.outbox] == [[operator.email]]
    assert "Under-replicated partitions of cluster alerts: 7." in mail.outbox[0].body
    assert not WebhookDelivery.objects.exists()


def test_simultaneous_alerts_share_a_mail_and_mails_per_hour_are_limited(
    owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ALERT_MAILS_PER_TENANT_AND_HOUR_MAX", 1)
    for number in range(3):
        rule_of(owner, instance, name=f"rule {number}")
    now = fill(owner, instance, 17, 17, 17)
    assert send_mails(now) == 3
    assert [message.subject for message in mail.outbox] == ["[Penstock] Alerts: 3 fire, 0 resolved"]

    for _ in range(4):
        now += MINUTE
        store(instance, 1, now)
        evaluating.evaluate(now)
    assert AlertFiring.objects.filter(resolved_at=None).count() == 0
    assert send_mails(now) == 0 and MailNotice.objects.filter(finished_at=None).count() == 3
    assert send_mails(now + timedelta(hours=1)) == 3
    assert mail.outbox[-1].subject == "[Penstock] Alerts: 0 fire, 3 resolved" and len(mail.outbox) == 2


def test_a_worker_that_dies_between_row_and_mail_loses_no_mail(
    owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule_of(owner, instance)
    now = fill(owner, instance, 17, 17, 17)

    def die(*_: Any) -> outbox.MailDelivery:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outbox.send_due(now, budgets=die, alerts=die)
    assert not mail.outbox
    assert send_mails(now + MINUTE) == 0  # it is still taken
    assert send_mails(now + outbox.LEASE) == 1
    assert len(mail.outbox) == 1


def test_a_mail_server_that_takes_nothing_is_tried_again_and_given_up_at_last(
    owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule_of(owner, instance)
    now = fill(owner, instance, 17, 17, 17)
    monkeypatch.setattr("tenants.mails.send", lambda *_, **__: False)
    tried = 0
    for _ in range(20):
        tried += send_mails(now)
        now += timedelta(hours=3)
    assert tried == len(outbox.RETRY_DELAYS) + 1
    notice = MailNotice.objects.get()
    assert notice.finished_at is not None and notice.sent_to == 0


def test_a_rule_that_is_paused_is_not_evaluated_and_one_broken_batch_stops_no_other(
    owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "RULES_PER_BATCH", 1)
    paused = rule_of(owner, instance, name="paused", is_enabled=False)
    other = make_member()
    broken, well = rule_of(owner, instance), rule_of(other, make_instance(other.tenant))
    read = evaluating.figures.read

    def fails(found: list[AlertRule], now: datetime) -> Any:
        if found[0].pk == broken.pk:
            raise ValueError
        return read(found, now)

    monkeypatch.setattr(evaluating.figures, "read", fails)
    evaluating.evaluate(START)
    evaluated = dict(AlertRule.objects.values_list("pk", "evaluated_at"))
    assert evaluated == {paused.pk: None, broken.pk: None, well.pk: START}


@pytest.mark.django_db(transaction=True)
class TestWithRealTransactions:
    """Several workers at once, and a real receiver."""

    @pytest.fixture()
    def server(self, tmp_path: Path, settings: Any) -> Iterator[HttpsServer]:
        with https_server(tmp_path) as running:
            settings.OUTBOUND_PRIVATE_ADDRESSES = (ip_network("127.0.0.0/8"),)
            settings.OUTBOUND_CA_FILE = running.ca_file
            running.answers({"ok": True})
            yield running

    def test_an_alert_reaches_a_receiver_signed_and_so_does_its_end(
        self, owner: Member, instance: Instance, server: HttpsServer
    ) -> None:
        _endpoint, secret = webhooks.create_endpoint(acting=member_actor(owner), url=server.url)
        rule = rule_of(owner, instance)
        now = fill(owner, instance, 17, 17, 17)
        assert delivering.deliver(now) == 1
        headers, body = sent(server)
        assert verified(secret, headers, body) and not verified(secret, headers, body + b" ")
        document = json.loads(body)
        assert document["type"] == "alert.firing"
        data = document["data"]
        assert (data["rule_id"], data["instance_id"], data["value"]) == (rule.pk, instance.pk, 85)
        assert data["resolved_at"] is None

        rules.delete_rule(acting=member_actor(owner), rule=rule)
        assert delivering.deliver(timezone.now()) == 1
        headers, body = sent(server)
        document = json.loads(body)
        assert verified(secret, headers, body) and document["type"] == "alert.resolved"
        assert (document["data"]["id"], document["data"]["ended_by"]) == (data["id"], "deleted")

    def test_workers_that_evaluate_at_the_same_time_say_each_thing_once(
        self, owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lock that serializes evaluations is off: the rows alone must prevent duplicates."""
        webhooks.create_endpoint(acting=member_actor(owner), url="https://example.com/")
        for number in range(20):
            rule_of(owner, instance, name=f"rule {number}")

        def evaluate(now: datetime) -> None:
            try:
                evaluating._run(evaluating.EvaluationSummary(), now)
            finally:
                connections.close_all()

        for number in range(6):
            now = START + number * MINUTE
            store(instance, 17, now)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(evaluate, [now + timedelta(milliseconds=each) for each in range(4)]))
        assert AlertFiring.objects.count() == WebhookDelivery.objects.count() == MailNotice.objects.count() == 20

    def test_a_kill_within_a_turn_leaves_nothing_behind_and_the_next_turn_says_it(
        self, owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rule = rule_of(owner, instance)
        webhooks.create_endpoint(acting=member_actor(owner), url="https://example.com/")
        now = fill(owner, instance, 17, 17)
        store(instance, 17, now + MINUTE)

        def die(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(evaluating, "_write_states", die)
            evaluating.evaluate(now + MINUTE)
        assert not AlertFiring.objects.exists() and not WebhookDelivery.objects.exists()
        assert not MailNotice.objects.exists() and said(rule)[0] == "pending"
        evaluating.evaluate(now + MINUTE)
        assert AlertFiring.objects.count() == WebhookDelivery.objects.count() == MailNotice.objects.count() == 1
