"""Backlogs of hostile tenants, of any age and length, do not delay a neighbour's webhook, archive or mail."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db import connections
from django.utils import timezone

from archives import job, running
from archives.models import Archive
from notifications import outbox, queues
from notifications.budgets import alerts as budget_alerts
from notifications.models import (
    BudgetAlert,
    MailNotice,
    NoticeKind,
    Queue,
    QueueTurn,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
)
from notifications.webhooks import choosing, delivering
from notifications.webhooks import services as webhooks
from tenants.actors import member_actor
from tenants.limits import OUTBOUND_DEADLINE_S
from tenants.models import Member, Tenant, User
from tests.testkit.api_cases import make_member
from tests.testkit.fleet import make_fleet, make_running, place
from tests.testkit.https_server import HttpsServer, https_server
from tests.testkit.waiting import eventually

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
OLD = timedelta(hours=3)


def make_endpoint(tenant: Tenant, url: str, **fields: Any) -> WebhookEndpoint:
    return WebhookEndpoint.objects.create(tenant=tenant, url=url, secret="s", **fields)


def make_backlog(endpoint: WebhookEndpoint, count: int, *, at: datetime) -> None:
    WebhookDelivery.objects.bulk_create(
        WebhookDelivery(endpoint=endpoint, event=WebhookEvent.TEST, payload={}, next_at=at) for _ in range(count)
    )


# --- webhooks ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("tenants, endpoints, backlog", [(16, 1, 300), (16, 10, 20), (40, 3, 20), (2, 10, 500)])
def test_a_neighbours_delivery_is_among_the_next_whatever_waits_for_others(
    tenants: int, endpoints: int, backlog: int
) -> None:
    for number in range(tenants):
        tenant = make_member().tenant
        for index in range(endpoints):
            found = make_endpoint(tenant, f"https://slow-{number}-{index}.example/", is_slow=True, tried_at=NOW - OLD)
            make_backlog(found, backlog, at=NOW - OLD)
    assert choosing.lease_due(NOW, NOW + OLD, [])
    neighbour = make_endpoint(make_member().tenant, "https://fast.example/", tried_at=NOW - OLD)
    make_backlog(neighbour, 1, at=NOW)
    taken = choosing.lease_due(NOW, NOW + OLD, [])
    assert neighbour.pk in {delivery.endpoint_id for delivery in taken}
    under_way = [delivery.endpoint for delivery in taken]
    by_tenant = [endpoint.tenant_id for endpoint in under_way]
    assert max(map(by_tenant.count, by_tenant)) <= choosing.TENANT_IN_FLIGHT_MAX
    assert sum(endpoint.is_slow for endpoint in under_way) <= choosing.SLOW_IN_FLIGHT_MAX
    assert len({endpoint.pk for endpoint in under_way}) == len(under_way)


@pytest.mark.django_db
def test_tenants_take_turns_and_one_that_makes_its_endpoints_anew_comes_last() -> None:
    served = []
    members = [make_member() for _ in range(5)]
    for member in members:
        for index in range(3):
            endpoint = make_endpoint(member.tenant, f"https://{member.tenant_id}-{index}.example/", tried_at=NOW)
            make_backlog(endpoint, 50, at=NOW - OLD)
    places = [WebhookEndpoint(pk=f"whk-{number}", url=f"https://busy-{number}.example") for number in range(15)]
    for place_ in places:
        place_.tenant_id, place_.tried_at = place_.pk, NOW
    for _ in range(15):
        (delivery,) = choosing.lease_due(NOW, NOW + OLD, places)
        served.append(delivery.endpoint.tenant_id)
    assert all(set(served[at : at + 5]) == {member.tenant_id for member in members} for at in (0, 5, 10))
    WebhookEndpoint.objects.filter(tenant=served[-1]).delete()
    make_backlog(make_endpoint(Tenant.objects.get(pk=served[-1]), "https://new.example/", tried_at=NOW), 1, at=NOW)
    (delivery,) = choosing.lease_due(NOW, NOW + OLD, places)
    assert delivery.endpoint.tenant_id == served[0]


@pytest.mark.django_db
def test_one_address_has_few_places_under_any_spelling() -> None:
    for number in range(12):
        url = f"https://{'Hooks' if number % 2 else 'hooks'}.example/{number}"
        make_backlog(make_endpoint(make_member().tenant, url, tried_at=NOW), 5, at=NOW - OLD)
    taken = choosing.lease_due(NOW, NOW + OLD, [])
    assert len(taken) == choosing.ADDRESS_IN_FLIGHT_MAX
    assert choosing.lease_due(NOW, NOW + OLD, [delivery.endpoint for delivery in taken]) == []


@pytest.fixture()
def slow_servers(tmp_path: Path, settings: Any) -> Iterator[list[HttpsServer]]:
    """Servers at different addresses that accept a request and never answer."""
    with ExitStack() as stack:
        servers = [stack.enter_context(https_server(tmp_path)) for _ in range(choosing.IN_FLIGHT_MAX)]
        settings.OUTBOUND_PRIVATE_ADDRESSES = (ip_network("127.0.0.0/8"),)
        settings.OUTBOUND_CA_FILE = servers[0].ca_file
        for server in servers:
            server.stall_until = threading.Event()
            server.answers({})
        yield servers


@pytest.mark.django_db(transaction=True)
def test_sixteen_slow_addresses_hold_no_place_of_a_neighbour(tmp_path: Path, slow_servers: list[HttpsServer]) -> None:
    for server in slow_servers:
        hostile = make_member()
        found, _ = webhooks.create_endpoint(acting=member_actor(hostile), url=server.url)
        make_backlog(found, 300, at=timezone.now() - OLD)
    with https_server(tmp_path) as fast, ThreadPoolExecutor(1) as pool:
        fast.answers({"ok": True})
        found, _ = webhooks.create_endpoint(acting=member_actor(make_member()), url=fast.url)
        WebhookEndpoint.objects.filter(pk=found.pk).update(tried_at=timezone.now())
        run = pool.submit(_deliver)
        asked = lambda: sum(len(server.requests) for server in slow_servers)  # noqa: E731
        eventually(lambda: asked() >= choosing.SLOW_IN_FLIGHT_MAX, what="slow deliveries under way")
        make_backlog(found, 1, at=timezone.now() - OLD)
        began_s = time.monotonic()
        eventually(lambda: fast.requests, what="the neighbour's delivery")
        assert time.monotonic() - began_s < OUTBOUND_DEADLINE_S / 2
        assert not run.done()
        for server in slow_servers:
            server.stall_until.set()
        run.result()
    assert WebhookDelivery.objects.get(endpoint=found).state == "delivered"


def _deliver() -> int:
    try:
        return delivering.deliver(timezone.now() + timedelta(seconds=1))
    finally:
        connections.close_all()


# --- archives ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_archives_of_a_neighbour_run_between_those_of_a_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_fleet(tmp_path)

    def make_archives(member: Member, count: int, due: datetime) -> None:
        instance = make_running(member.tenant)
        place(instance, cluster)
        for number in range(count):
            Archive.objects.create(
                tenant=member.tenant, instance=instance, topic=f"t{number}", url="s3://b", next_run_at=due
            )

    hostile, other, neighbour = (make_member() for _ in range(3))
    make_archives(hostile, 20, NOW - OLD)
    make_archives(other, 20, NOW - OLD)
    make_archives(neighbour, 1, NOW)
    order: list[str] = []

    def run_one(_session: object, archive: Archive, _now: datetime) -> job.ArchiveRunReport:
        """Pretends that there is more to read, so that the archive is due again at once."""
        order.append(archive.tenant_id)
        return job.ArchiveRunReport(records=1, files=1, is_caught_up=False, error="")

    monkeypatch.setattr(running, "run_one", run_one)
    assert running.run_due(_no_session, NOW) == 41
    assert order.index(neighbour.tenant_id) < 3
    assert sorted(order[:3]) == sorted(member.tenant_id for member in (hostile, other, neighbour))
    assert all(order[at] != order[at + 1] for at in range(3, 39))


def _no_session() -> Any:
    raise AssertionError("nothing is read")


# --- mails ------------------------------------------------------------------------------------------------------------


def make_notices(member: Member, count: int, at: datetime) -> None:
    for number in range(count):
        alert = BudgetAlert.objects.create(
            tenant=member.tenant, budget_id=f"{member.tenant_id[-6:]}-{number}", budget_name=f"b{number}", month=NOW,
            mark=50, amount=Decimal(1), spent=Decimal(1), forecast=Decimal(1), at=at,
        )  # fmt: skip
        MailNotice.objects.create(
            tenant=member.tenant, kind=NoticeKind.BUDGET, budget_alert=alert, created_at=at, next_at=at
        )


@pytest.fixture()
def members(db: None) -> list[Member]:
    made = [make_member() for _ in range(3)]
    User.objects.update(email_verified_at=timezone.now())
    return made


def send(now: datetime) -> list[str]:
    before = len(mail.outbox)
    outbox.send_due(now, budgets=budget_alerts.send_mail, alerts=_no_alerts)
    return [message.to[0] for message in mail.outbox[before:]]


def _no_alerts(*_: object) -> outbox.MailDelivery:
    raise AssertionError("there is none")


def test_mails_of_a_neighbour_are_sent_between_those_of_a_backlog(members: list[Member]) -> None:
    hostile, other, neighbour = members
    make_notices(hostile, 50, NOW - OLD)
    make_notices(other, 50, NOW - OLD)
    make_notices(neighbour, 1, NOW)
    assert neighbour.user.email in send(NOW)[:3]


def test_budget_mails_per_hour_are_limited_and_the_last_one_says_so(members: list[Member]) -> None:
    owner, *_others = members
    most = outbox.BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX
    make_notices(owner, most + 3, NOW - OLD)
    assert send(NOW) == [owner.user.email] * most
    said = ["This is the last of these mails in this hour" in message.body for message in mail.outbox]
    assert said == [False] * (most - 1) + [True]
    assert send(NOW + timedelta(minutes=30)) == []
    assert MailNotice.objects.filter(finished_at=None).count() == 3
    assert len(send(NOW + timedelta(minutes=61))) == 3


def test_mails_to_one_address_are_limited_over_all_its_tenants(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAILS_PER_ADDRESS_AND_HOUR_MAX", 4)
    victim = members[0].user
    for member in members:
        Member.objects.get_or_create(tenant=member.tenant, user=victim, defaults={"role": "admin"})
        make_notices(member, 3, NOW - OLD)
    sent = send(NOW)
    assert sent.count(victim.email) == 4
    assert all(sent.count(member.user.email) == 3 for member in members[1:])
    bodies = [message.body for message in mail.outbox if message.to == [victim.email]]
    assert ["This is the last" in body for body in bodies] == [False, False, False, True]
    waiting = MailNotice.objects.filter(finished_at=None, tenant=members[0].tenant)
    assert waiting.exists(), "a mail that nobody got is sent later"


@pytest.mark.django_db
def test_turns_are_kept_by_queue() -> None:
    first, second = sorted(make_member().tenant_id for _ in range(2))
    queues.record_served(Queue.MAILS, [first])
    queues.record_served(Queue.MAILS, [first])
    assert queues.in_service_order(Queue.MAILS, {first, second}) == [second, first]
    assert queues.in_service_order(Queue.WEBHOOKS, {first, second}) == [first, second]
    assert QueueTurn.objects.count() == 1
