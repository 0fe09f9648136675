"""Agreement between pages: a cause that stops clients is shown once on each page, in figures of one moment."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances import services
from instances.groups import lag_history
from instances.interfaces import BrokerUnresponsive
from instances.lifecycle.conditions import LeaderlessPartitions, Observation, StorageUsed
from instances.models import Instance
from instances.templatetags.groups import group_url, transaction_url
from notifications.alerts import firings
from notifications.alerts import services as alerts
from notifications.alerts.firings import Fired
from notifications.models import AlertRule
from tenants.actors import member_actor
from tenants.models import AuditEntry, Member
from tests.component.console.fakes import NOW_MS, FakeObservation, share, throttle
from tests.testkit.fake_groups import FakeGroups, FakeTransactions

PART = {"HX-Request": "true"}
BANDWIDTH = {"kind": "instance_bandwidth", "quota": "producer_byte_rate", "level": None, "entity": {}}
BANNER = 'class="note warn need"'


def read(client: Client, address: str, **query: str) -> str:
    return html.unescape(client.get(address, query, headers=PART).content.decode())


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def why(client: Client, instance: Instance) -> str:
    return read(client, reverse("page-why", args=[instance.pk]))


def note(instance: Instance, **seen: Any) -> None:
    observed = {"silent": frozenset(seen.pop("silent", ())), "at": timezone.now(), **seen}
    services.record_health(instance.pk, Observation(**observed))


def fire(owner: Member, instance: Instance, kind: str, **terms: Any) -> None:
    rule = alerts.create_rule(
        acting=member_actor(owner), instance=instance, name=f"rule {kind}", kind=kind, threshold=1, **terms
    )
    firings.begin([Fired(rule, 90, timezone.now())], timezone.now())


# --- why am I slow ----------------------------------------------------------------------------------------------------


def test_partitions_without_a_leader_are_the_answer_to_why_a_client_is_slow(ida: Client, instance: Instance) -> None:
    note(instance, leaderless=LeaderlessPartitions(count=2, names=("orders.created/0", "orders.created/2")))
    panel = why(ida, instance).partition("<template")[0]
    assert "No client waits" not in panel
    assert "Clients of 2 partitions wait until they time out" in panel
    assert "orders.created/0, orders.created/2" in panel


def test_a_broker_that_does_not_answer_is_named_at_the_first_look(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.silent = (BrokerUnresponsive(broker_id=2, reason="does not answer"),)
    panel = why(ida, instance).partition("<template")[0]
    assert "No client waits" not in panel
    assert "Broker 2 does not answer" in panel


def test_one_cause_has_one_banner(ida: Client, instance: Instance) -> None:
    note(instance, silent={2}, leaderless=LeaderlessPartitions(count=1, names=("orders.created/1",)))
    page = why(ida, instance)
    assert page.count(BANNER) == 1
    assert page.count('class="note warn') == 1
    assert "Broker 2 of your 3 does not answer: 1 partition has no leader: orders.created/1" in page


def test_storage_that_is_used_up_has_one_banner(ida: Client, instance: Instance) -> None:
    note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes, is_full=True))
    page = why(ida, instance)
    assert page.count('class="note warn') == 1
    assert "Produce is refused, not delayed" in page


def test_two_bursts_are_not_one_long_delay(ida: Client, instance: Instance, observation: FakeObservation) -> None:
    observation.entries = (
        throttle(
            since_ms=NOW_MS - 540_000, burst_since_ms=NOW_MS - 12_000, last_ms=NOW_MS - 2_000, bursts=2, active=False
        ),
    )
    page = words(why(ida, instance))
    assert "for 10 s" in page
    assert "for 9 min" not in page
    assert "2 bursts since" in page


def test_a_delay_without_a_pause_is_one_length(ida: Client, instance: Instance, observation: FakeObservation) -> None:
    observation.entries = (
        throttle(broker_id=1, since_ms=NOW_MS - 60_000, burst_since_ms=NOW_MS - 60_000, last_ms=NOW_MS - 1_000),
        throttle(broker_id=2, since_ms=NOW_MS - 90_000, burst_since_ms=NOW_MS - 30_000, bursts=2),
    )
    page = words(why(ida, instance))
    assert "for 1 min" in page


def test_shares_in_one_sentence_are_those_of_now(ida: Client, instance: Instance, observation: FakeObservation) -> None:
    """Each throttle has the share of its own last delay: together they would exceed the limit."""
    bought = instance.bandwidth_bytes_per_s
    observation.entries = tuple(
        throttle(**BANDWIDTH, broker_id=number, limit_per_s=bought * 0.9, last_ms=NOW_MS - 10_000 * number)
        for number in (1, 2, 3)
    )
    observation.shares = {number: share(number, share_bytes_per_s=bought // 4) for number in (1, 2, 3)}
    page = why(ida, instance)
    shown = [float(found) for found in re.findall(r"broker \d \(([\d.]+) MB/s\)", page)]
    assert len(shown) == 3
    assert sum(shown) <= instance.bandwidth_mb_s


@pytest.mark.parametrize("has_answers", [True, False])
def test_shares_that_do_not_fit_together_are_left_out(
    ida: Client, instance: Instance, observation: FakeObservation, has_answers: bool
) -> None:
    bought = instance.bandwidth_bytes_per_s
    observation.entries = tuple(throttle(**BANDWIDTH, broker_id=number, limit_per_s=bought * 0.9) for number in (1, 2))
    if has_answers:
        observation.shares = {number: share(number, share_bytes_per_s=bought * 9 // 10) for number in (1, 2)}
    page = why(ida, instance)
    assert "Now at its share: broker 1, broker 2." in page
    assert "share now" not in page


# --- alerts -----------------------------------------------------------------------------------------------------------


def test_a_firing_alert_shows_in_the_list_and_among_what_needs_somebody(
    ida: Client, owner: Member, instance: Instance
) -> None:
    fire(owner, instance, "throttled_share", window_minutes=15)
    page = read(ida, reverse("page-instances"))
    assert "rule throttled_share" in page
    assert "Clients of orders-prod were delayed in 90 % of 15 minutes" in page
    assert "All well" not in page
    assert "Alert" in page.partition("<template")[0]


def test_a_firing_alert_shows_on_the_instance_and_on_the_group(ida: Client, owner: Member, instance: Instance) -> None:
    fire(owner, instance, "consumer_lag", group_id="billing")
    assert "Group billing of orders-prod is 90 records behind" in why(ida, instance)
    assert "Group billing of orders-prod is 90 records behind" in read(
        ida, group_url("page-group", instance.pk, "billing")
    )
    assert "90 records behind" not in read(ida, group_url("page-group", instance.pk, "reports"))


def test_an_alert_about_what_a_banner_says_is_in_that_banner(ida: Client, owner: Member, instance: Instance) -> None:
    note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes * 95 // 100))
    fire(owner, instance, "storage_used")
    page = why(ida, instance)
    assert page.count(BANNER) == 1
    assert "rule storage_used" in page


def test_alerts_of_others_and_resolved_ones_show_nowhere(
    ida: Client, owner: Member, stranger: Member, browse: Any, instance: Instance
) -> None:
    fire(owner, instance, "throttled_share", window_minutes=15)
    assert "rule throttled_share" not in read(browse(stranger), reverse("page-instances"))
    rule = AlertRule.objects.get()
    alerts.delete_rule(acting=member_actor(owner), rule=rule)
    assert "rule throttled_share" not in why(ida, instance)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_the_group_that_a_transaction_holds_back_names_it(
    ida: Client, instance: Instance, groups: FakeGroups, transactions: FakeTransactions
) -> None:
    """A consumer of committed records waits at the first offset of an open transaction, here 120."""
    started_ms = time.time_ns() // 1_000_000 - 60_000
    transactions.add(instance.pk, "stuck-mover", ("orders.created", 1), started_ms=started_ms)
    groups.add(instance.pk, "held", {("orders.created", 1): 120})
    page = read(ida, group_url("page-group", instance.pk, "held"))
    assert "stuck-mover" in page
    assert "holds back" in page
    assert reverse("page-transaction", args=[instance.pk]) + "?id=stuck-mover" in page


def test_a_group_that_is_merely_late_or_reads_all_names_no_transaction(
    ida: Client, instance: Instance, groups: FakeGroups, transactions: FakeTransactions
) -> None:
    started_ms = time.time_ns() // 1_000_000 - 60_000
    transactions.add(instance.pk, "stuck-mover", ("orders.created", 1), started_ms=started_ms)
    for name, offset in (("late", 12), ("uncommitted", 500)):
        groups.add(instance.pk, name, {("orders.created", 1): offset})
        assert "stuck-mover" not in read(ida, group_url("page-group", instance.pk, name))


def test_more_groups_than_are_compared_still_show_the_largest_lags(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    for number in range(60):
        groups.add(instance.pk, f"group-{number:02}", {("orders.created", 0): 1_000})
    groups.add(instance.pk, "zz-late", {("orders.created", 0): 3})
    now_ms = time.time_ns() // 1_000_000
    ends = {("orders.created", 0): 1_000}
    offsets = {f"group-{number:02}": {("orders.created", 0): 1_000} for number in range(60)}
    lag_history.record_samples(instance.pk, {**offsets, "zz-late": {("orders.created", 0): 3}}, ends, now_ms)
    page = read(ida, reverse("page-groups-part", args=[instance.pk]))
    assert "zz-late" in page
    assert "997" in page


def test_the_tenants_admin_aborts_a_transaction_after_a_question(
    instance: Instance, join: Any, browse: Any, transactions: FakeTransactions
) -> None:
    admin, viewer = browse(join("admin")), browse(join("viewer"))
    own, act = (transaction_url(name, instance.pk, "mover") for name in ("page-transaction", "page-transaction-abort"))
    assert act in html.unescape(admin.get(own).content.decode())
    assert act not in html.unescape(viewer.get(own).content.decode())
    assert viewer.post(act, {"confirmed": "yes"}).status_code == 403
    assert "Abort transaction mover?" in html.unescape(admin.post(act).content.decode())
    assert transactions.descriptions[instance.pk, "mover"].state == "Ongoing"
    assert admin.post(act, {"confirmed": "yes"}).status_code == 302
    assert transactions.descriptions[instance.pk, "mover"].state == "CompleteAbort"
    assert AuditEntry.objects.filter(action="transaction.aborted", tenant=instance.tenant).count() == 1
    assert (
        "No transaction is open under this id." in admin.post(act, {"confirmed": "yes"}, follow=True).content.decode()
    )


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_part", [True, False])
def test_counts_beside_a_filter_count_what_the_filter_leaves(ida: Client, instance: Instance, is_part: bool) -> None:
    for query, n in (("orders", 1), ("nothing-like-it", 0)):
        answer = ida.get(reverse("page-instances"), {"q": query}, headers=PART if is_part else {})
        assert f"All {n}<" in answer.content.decode()


def test_counts_of_groups_come_with_the_rows(ida: Client, instance: Instance) -> None:
    assert "All 1<" in read(ida, reverse("page-groups", args=[instance.pk]), q="billing")
    assert "All ids 1<" in read(ida, reverse("page-transactions", args=[instance.pk]), q="mover")
    assert "All ids 0<" in read(ida, reverse("page-transactions", args=[instance.pk]), q="nobody")


# --- pages while something is wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["page-groups-part", "page-topics-part", "page-groups"])
def test_parts_are_asked_for_every_two_seconds_while_something_is_wrong(
    ida: Client, instance: Instance, name: str
) -> None:
    address = reverse(name, args=[instance.pk])
    assert "Live-Period" not in ida.get(address, headers=PART).headers
    note(instance, silent={2})
    assert ida.get(address, headers=PART).headers["Live-Period"] == "2000"


def test_the_banner_of_storage_leads_to_its_remedies(ida: Client, instance: Instance) -> None:
    note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes, is_full=True))
    page = why(ida, instance)
    for name in ("page-storage", "page-instance-resize", "page-topics"):
        assert f'href="{reverse(name, args=[instance.pk])}"' in page
    assert "The storage is used up" in read(ida, reverse("page-storage", args=[instance.pk]))


def test_one_who_may_not_resize_is_not_led_there(instance: Instance, join: Any, browse: Any) -> None:
    note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes, is_full=True))
    viewer = browse(join("viewer"))
    page = why(viewer, instance)
    assert reverse("page-instance-resize", args=[instance.pk]) not in page
    assert reverse("page-storage", args=[instance.pk]) in page
