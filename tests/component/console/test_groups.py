"""Pages of groups: live parts, previews of resets, undo, and unknown values."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.test import Client
from django.urls import reverse

from instances.groups.interfaces import GroupSummary
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from instances.views.groups import ranges
from tenants.models import AuditEntry
from tests.testkit.fake_groups import FakeGroups, FakeTransactions, member

TOPIC = "orders.created"
LIVE = {"HX-Request": "true"}


def text_of(response: object) -> str:
    return response.content.decode()  # type: ignore[attr-defined,no-any-return]


def at(page: str, instance: Instance, group: str | None = None) -> str:
    address = reverse(page, args=[instance.pk])
    return address if group is None else f"{address}?group={group}"


def test_a_page_stands_before_any_group_is_asked_and_its_live_part_asks(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    page = text_of(ida.get(at("page-groups", instance)))
    assert "billing" in page and "reports" in page
    assert groups.described_ids == []
    part = text_of(ida.get(at("page-groups", instance), headers=LIVE))
    assert "<html" not in part and "1,098" in part
    assert groups.described_ids == [("billing", "reports")]


def test_groups_are_filtered_by_name_and_state(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    groups.add(instance.pk, "moving", {}, member("x"), state="PreparingRebalance")
    address = at("page-groups", instance)
    assert "billing" not in text_of(ida.get(f"{address}?q=rep", headers=LIVE))
    assert re.findall(r"<tr><td><a[^>]*>([\w-]+)</a>", text_of(ida.get(f"{address}?state=rebalancing"))) == ["moving"]
    assert "No group matches “zzz”" in text_of(ida.get(f"{address}?q=zzz"))


def test_no_group_says_how_one_comes(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    groups.descriptions.clear()
    assert "A group appears when its first consumer joins." in text_of(ida.get(at("page-groups", instance)))


def test_many_groups_come_page_by_page(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    for number in range(70):
        groups.add(instance.pk, f"g-{number:02}", {})
    page = text_of(ida.get(at("page-groups", instance) + "?q=g-"))
    assert "g-49" in page and "g-50" not in page
    following = re.search(r'href="(\?[^"]*page_token=[^"]+)"', page)
    assert following is not None
    page = text_of(ida.get(at("page-groups", instance) + following[1].replace("&amp;", "&")))
    assert "g-50" in page and "g-49" not in page


def test_unknown_parts_are_named(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    groups.silent = (BrokerUnresponsive(broker_id=3, reason="does not answer"),)
    groups.unresponsive_groups.add("billing")
    part = text_of(ida.get(at("page-groups", instance), headers=LIVE))
    assert "Broker 3 does not answer" in part and "broker 1 does not answer" in part
    page = ida.get(at("page-group", instance, "billing"))
    assert page.status_code == 200
    assert "This page goes on asking." in text_of(page)
    assert ida.get(at("page-group", instance, "billing"), headers=LIVE).status_code == 503
    assert ida.get(at("page-group", instance, "nobody")).status_code == 404


def test_a_group_shows_members_and_partitions_worst_first(ida: Client, instance: Instance) -> None:
    page = text_of(ida.get(at("page-group", instance, "billing")))
    order = re.findall(r'<td class="mono">orders.created</td><td class="right">(\d)</td>', page)
    assert order == ["2", "1", "0"]
    assert "the log begins at 10" in page
    assert "billing-1" in page and ">0-2<" in page
    by_name = text_of(ida.get(at("page-group", instance, "billing") + "&sort=name"))
    assert re.findall(r'<td class="mono">orders.created</td><td class="right">(\d)</td>', by_name) == ["0", "1", "2"]


def preview(ida: Client, instance: Instance, **values: str) -> tuple[int, str, dict[str, str]]:
    """Returns status and page of a preview, and the fields of the form that applies it."""
    body = {"to": "earliest", "topic": "", "partitions": "", "act": "preview", **values}
    response = ida.post(at("page-group-reset", instance, "reports"), body)
    page = text_of(response)
    expected = re.search(r'name="expected" value="(\w+)"', page)
    return response.status_code, page, {**body, "act": "apply", "expected": expected[1] if expected else ""}


def test_a_reset_is_shown_carried_out_and_undone(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    status, page, apply = preview(ida, instance, to="shift", by="-1000")
    assert status == 200
    assert "first offset kept" in page and "−390" in page and "Reset 1 offset" in page
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 400}
    done = text_of(ida.post(at("page-group-reset", instance, "reports"), apply, follow=True))
    assert "The offset of 1 partition is reset." in done and "Put the earlier ones back" in done
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 10}
    back = re.search(r'action="([^"]*/groups/undo/[^"]*)"', done)
    assert back is not None
    assert "The earlier offsets are back." in text_of(ida.post(back[1].replace("&amp;", "&"), follow=True))
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 400}


def test_a_group_that_moved_since_the_preview_is_shown_again_first(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    _, _, apply = preview(ida, instance)
    groups.add(instance.pk, "reports", {(TOPIC, 0): 500})
    again = ida.post(at("page-group-reset", instance, "reports"), apply)
    assert again.status_code == 422
    assert "Look at it again." in text_of(again) and ">500<" in text_of(again)
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 500}


@pytest.mark.parametrize(
    ("values", "log", "lands"),
    [
        ({"to": "latest"}, (10, 700), 700),
        ({"to": "time", "time": "2030-01-01T00:00"}, (10, 700), 700),
        ({"to": "earliest"}, (25, 600), 25),
        ({"to": "shift", "by": "-1000"}, (25, 600), 25),
        ({"to": "shift", "by": "100000"}, (10, 700), 700),
    ],
)
def test_producers_and_retention_do_not_stop_a_reset_to_an_end_of_the_log(
    values: dict[str, str], log: tuple[int, int], lands: int, ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    """A person needs seconds to read the plan, in which both ends of a log in use move."""
    _, _, apply = preview(ida, instance, **values)
    groups.logs[TOPIC, 0] = log
    done = text_of(ida.post(at("page-group-reset", instance, "reports"), apply, follow=True))
    assert "The offset of 1 partition is reset." in done
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): lands}


def test_an_offset_that_an_end_of_the_log_has_passed_since_is_shown_again_first(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    _, _, apply = preview(ida, instance, to="offset", offset="500")
    groups.logs[TOPIC, 0] = (550, 700)
    again = ida.post(at("page-group-reset", instance, "reports"), apply)
    assert again.status_code == 422 and "Look at it again." in text_of(again)
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 400}


def test_a_table_nobody_saw_is_not_carried_out(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    ida.post(at("page-group-reset", instance, "reports"), {"to": "earliest", "topic": "", "act": "apply"})
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 400}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"to": "offset"}, "This is needed."),
        ({"to": "time", "time": "yesterday"}, "Enter a valid date/time."),
        ({"partitions": "0"}, "Choose the topic"),
        ({"topic": TOPIC, "partitions": "2-x"}, "Use numbers and ranges"),
        ({"topic": TOPIC, "partitions": "0,77"}, "The topic has no partition 77."),
        ({"topic": TOPIC, "to": "shift", "by": "1", "partitions": "1"}, "Nothing is committed to shift"),
    ],
)
def test_a_wrong_value_is_reported_beside_its_field(
    values: dict[str, str], words: str, ida: Client, instance: Instance
) -> None:
    status, page, _ = preview(ida, instance, **values)
    assert status == 422
    assert words in page


def test_a_group_with_members_shows_the_table_and_why_it_waits(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    body = {"to": "latest", "topic": "", "partitions": "", "act": "preview"}
    page = text_of(ida.post(at("page-group-reset", instance, "billing"), body))
    assert "billing has running members." in page and "1 member runs. Stop it first." in page
    assert re.search(r"<button[^>]*disabled[^>]*>Reset", page)
    assert groups.committed(instance.pk, "billing")[TOPIC, 2] == 5


def test_deleting_asks_for_the_name_and_can_be_undone(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    address = at("page-group-delete", instance, "reports")
    ida.post(address, {"part": "group", "typed": "something else"})
    assert groups.committed(instance.pk, "reports")
    done = text_of(ida.post(address, {"part": "group", "typed": "reports"}, follow=True))
    assert "Group reports deleted." in done and not groups.committed(instance.pk, "reports")
    back = re.search(r'action="([^"]*/groups/undo/[^"]*)"', done)
    assert back is not None
    ida.post(back[1].replace("&amp;", "&"))
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 400}


def test_one_topic_is_forgotten(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    groups.add(instance.pk, "two-topics", {(TOPIC, 0): 400, ("clicks", 0): 7})
    done = ida.post(at("page-group-delete", instance, "two-topics"), {"part": "topic", "topic": TOPIC}, follow=True)
    assert done.redirect_chain == [(at("page-group", instance, "two-topics"), 302)]
    assert (done.status_code, "has forgotten what it read of" in text_of(done)) == (200, True)
    assert groups.committed(instance.pk, "two-topics") == {("clicks", 0): 7}
    assert AuditEntry.objects.filter(action="group.offsets_deleted").exists()


def test_a_group_that_forgot_all_it_read_is_gone_and_the_list_offers_to_bring_it_back(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    done = ida.post(at("page-group-delete", instance, "reports"), {"part": "topic", "topic": TOPIC}, follow=True)
    assert done.redirect_chain == [(at("page-groups", instance), 302)]
    assert done.status_code == 200
    back = re.search(r'action="([^"]*/groups/undo/[^"]*)"', text_of(done))
    assert back is not None
    undone = ida.post(back[1].replace("&amp;", "&"), follow=True)
    assert undone.redirect_chain == [(at("page-group", instance, "reports"), 302)]
    assert (undone.status_code, "The earlier offsets are back." in text_of(undone)) == (200, True)
    assert groups.committed(instance.pk, "reports") == {(TOPIC, 0): 400}


def test_no_undo_is_offered_while_members_run(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    """Brokers take offsets for a group only while it has no members."""
    groups.add(instance.pk, "at-work", {(TOPIC, 0): 400, ("clicks", 0): 7}, member("one", ("clicks", 0)))
    done = ida.post(at("page-group-delete", instance, "at-work"), {"part": "topic", "topic": TOPIC}, follow=True)
    assert done.redirect_chain == [(at("page-group", instance, "at-work"), 302)]
    assert "has forgotten what it read of" in text_of(done)
    assert "data-undo" not in text_of(done)


def test_an_undo_that_comes_too_late_ends_on_a_page_that_exists(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    gone = at("page-group-undo", instance, "no-such-group") + "&entry=aud-00000000"
    done = ida.post(gone, follow=True)
    assert done.redirect_chain == [(at("page-groups", instance), 302)]
    assert done.status_code == 200


def test_a_name_is_shown_as_text_wherever_it_stands(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    name = '<b onclick="x()">&amp;/../'
    groups.add(instance.pk, name, {(TOPIC, 0): 5})
    groups.unresponsive_groups.discard(name)
    listed = text_of(ida.get(at("page-groups", instance), headers=LIVE))
    address = re.search(r'href="([^"]*/groups/one/\?group=%3Cb[^"]*)"', listed)
    assert address is not None and "<b onclick" not in listed
    page = ida.get(address[1].replace("&amp;", "&"))
    assert page.status_code == 200 and "<b onclick" not in text_of(page)


def test_transactions_in_flight_are_listed_with_their_age(
    ida: Client, instance: Instance, transactions: FakeTransactions
) -> None:
    transactions.add(instance.pk, "old", (TOPIC, 1), (TOPIC, 2), started_ms=1)
    transactions.add(instance.pk, "done", state="CompleteCommit", started_ms=-1)
    page = text_of(ida.get(at("page-transactions", instance)))
    assert "mover" in page and "over its time-out" in page and ">done<" not in page
    assert ">done<" in text_of(ida.get(at("page-transactions", instance) + "?state=all"))
    detail = text_of(ida.get(at("page-transaction", instance) + "?id=old"))
    assert "Abort it, if its producer does not go on." in detail and "coordinated by broker 1" in detail
    transactions.descriptions.clear()
    assert "No transaction yet" in text_of(ida.get(at("page-transactions", instance), headers=LIVE))


@pytest.mark.parametrize("client_wrote_ms", [-1, 1_790_000_000_000_000, 2**63 - 1])
def test_a_producers_clock_may_say_anything(
    client_wrote_ms: int, ida: Client, instance: Instance, transactions: FakeTransactions
) -> None:
    """Timestamps come from clients: microseconds instead of milliseconds are a common mistake."""
    transactions.add(instance.pk, "slip", (TOPIC, 0), started_ms=1_790_000_000_000)
    look = transactions.producer_states[TOPIC, 0][-1]
    transactions.producer_states[TOPIC, 0] = [replace(look, last_timestamp_ms=client_wrote_ms)]
    page = ida.get(reverse("page-transaction", args=[instance.pk]) + "?id=slip")
    assert page.status_code == 200
    assert '<td class="right second">—</td>' in text_of(page)


def test_an_unanswered_coordinator_is_not_shown_as_nothing_committed(
    ida: Client, instance: Instance, groups: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(instance_id: str, name: str) -> GroupSummary:
        result = FakeGroups._look(groups, instance_id, name)
        return GroupSummary(description=result.description, offsets=None, trouble="broker 1 does not answer")

    monkeypatch.setattr(
        FakeGroups, "describe", lambda _self, of, ids, fresh=False: {item: half(of, item) for item in ids}
    )
    page = text_of(ida.get(at("page-group", instance, "billing")))
    assert "A part of this group is not known:" in page and "nothing committed" not in page


def test_the_instances_page_shows_who_is_behind_most(ida: Client, instance: Instance, groups: FakeGroups) -> None:
    overview = text_of(ida.get(reverse("page-instance", args=[instance.pk])))
    assert reverse("page-groups-part", args=[instance.pk]) in overview
    part = text_of(ida.get(at("page-groups-part", instance)))
    assert part.index("billing") < part.index("reports")
    for number in range(60):
        groups.add(instance.pk, f"g-{number:02}", {})
    groups.described_ids.clear()
    assert "No members: 61" in text_of(ida.get(at("page-groups-part", instance)))
    assert groups.described_ids == []


def test_an_instance_that_does_not_run_has_no_groups_to_show(ida: Client, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(phase="provisioning")
    assert "Groups appear with it." in text_of(ida.get(at("page-groups", instance)))
    assert "Transactions appear with it." in text_of(ida.get(at("page-transactions", instance)))


def test_numbers_are_written_as_ranges() -> None:
    assert ranges([3, 0, 1, 7, 2, 7]) == "0-3, 7"
    assert ranges([]) == ""
