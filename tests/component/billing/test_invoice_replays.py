"""Invoices with more reports in the lake than a request reads: the worker replays them, and pages and REST say so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone
from kombu.exceptions import OperationalError

from billing import call_limits, tasks
from billing.invoices import replays
from billing.invoices.recompute import Difference
from billing.models import Invoice, LakeFile
from brokers.infra.locks import Busy, exclusive_lock
from tenants.choices import Role, Scope
from tenants.models import AuditEntry, Member
from tests.component.billing.test_percentile_replay import BYTES, in_lake, invoiced
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Invoices that were given to the worker; a request reads no row of the lake."""
    asked: list[str] = []
    monkeypatch.setattr(replays, "enqueue", asked.append)
    monkeypatch.setattr(call_limits, "REPLAYED_ROWS_MAX", 0)
    cache.clear()
    return asked


@pytest.fixture()
def invoice(tmp_path: Path) -> Iterator[Invoice]:
    """An invoice whose usage the lake has."""
    issued, instance_id = invoiced()
    url = (tmp_path / "lake").as_uri()
    in_lake(url, instance_id, BYTES)
    with override_settings(LAKE_URL=url, USAGE_MINUTES_KEPT_DAYS=9_999):
        yield issued


@pytest.fixture()
def owner(invoice: Invoice) -> Member:
    return Member.objects.get(tenant=invoice.tenant, role=Role.OWNER)


class TestEndpointsOfReplays(EndpointCases):
    cases = (Case("POST", "/invoices/{invoice}/recompute", Scope.BILLING_READ, status=202, dry_run=False),)

    @pytest.fixture()
    def owner(self, invoice: Invoice) -> Member:
        return Member.objects.get(tenant=invoice.tenant, role=Role.OWNER)

    def places(self, owner: Member) -> dict[str, str]:
        return {"invoice": Invoice.objects.get(tenant=owner.tenant).pk}


def at(invoice: Invoice) -> str:
    return f"/invoices/{invoice.pk}/recompute"


def test_a_large_replay_is_asked_for_followed_and_answered(invoice: Invoice, owner: Member, queued: list[str]) -> None:
    caller = Api.of(owner)
    before = caller.get(at(invoice)).json()
    assert (before["is_replayed"], before["replay"]["state"], before["is_equal"]) == (False, "not_started", True)

    answer = caller.post(at(invoice))
    assert answer.status_code == 202 and answer.json()["state"] == "queued"
    assert answer["Location"].endswith(at(invoice)) and queued == [invoice.pk]
    assert caller.get(at(invoice)).json()["replay"]["state"] == "queued"
    assert AuditEntry.objects.filter(action="invoice.replayed", tenant=invoice.tenant).count() == 1

    tasks.replay_invoice(invoice.pk)
    found = caller.get(at(invoice)).json()
    assert (found["is_replayed"], found["is_equal"], found["replay"]["percent"]) == (True, True, 100.0)
    assert_problem(caller.post(at(invoice)), 409, "replayed_lately")


def test_a_deviating_lake_shows_as_a_difference_to_the_cent(tmp_path: Path) -> None:
    invoice, instance_id = invoiced()
    url = (tmp_path / "lake").as_uri()
    in_lake(url, instance_id, BYTES // 2)
    caller = Api.of(Member.objects.get(tenant=invoice.tenant))
    with override_settings(LAKE_URL=url, USAGE_MINUTES_KEPT_DAYS=9_999):
        assert caller.post(at(invoice)).status_code == 202
        replays.run(invoice.pk)
        found = caller.get(at(invoice)).json()
    assert found["is_equal"] is False
    assert [(each["source"], each["meter"], each["recomputed"]) for each in found["differences"]] == [
        ("lake", "bandwidth_p95", "17.86")
    ]


def test_differences_that_are_not_kept_are_counted(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "DIFFERENCES_KEPT_MAX", 1)
    difference = Difference(
        source="lake", instance_id="ins-a", plan="drop", meter="bytes_in", invoiced=Decimal(1), recomputed=Decimal(2)
    )
    monkeypatch.setattr(replays, "compare_with_lake", lambda *_: [difference] * 3)
    invoice, instance_id = invoiced()
    url = (tmp_path / "lake").as_uri()
    in_lake(url, instance_id, BYTES)
    member = Member.objects.get(tenant=invoice.tenant)
    client.force_login(member.user)
    with override_settings(LAKE_URL=url, USAGE_MINUTES_KEPT_DAYS=9_999):
        assert Api.of(member).get(at(invoice)).json()["replay"]["differences_omitted"] == 0
        assert Api.of(member).post(at(invoice)).json()["differences_omitted"] == 0
        replays.run(invoice.pk)
        found = Api.of(member).get(at(invoice)).json()
        page = client.get(f"{reverse('page-invoice', args=[invoice.pk])}?recompute").content.decode()
    assert (len(found["differences"]), found["replay"]["differences_omitted"]) == (1, 2)
    assert "2 more differences are not listed" in page


def test_progress_is_said_while_the_lake_is_read(invoice: Invoice, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, int, int]] = []
    note = replays._store

    def noting(noted: Invoice, replay: replays.InvoiceReplay) -> None:
        said.append((replay.state, replay.rows, replay.total))
        note(noted, replay)

    monkeypatch.setattr(replays, "_store", noting)
    monkeypatch.setattr(replays, "PROGRESS_INTERVAL", timedelta(0))
    replays.run(invoice.pk)
    assert said[0] == ("running", 0, 0) and ("running", 20, 20) in said and said[-1] == ("done", 20, 20)


def test_a_tenant_has_one_replay_at_a_time_and_one_that_fell_silent_is_started_again(
    invoice: Invoice, owner: Member, queued: list[str]
) -> None:
    caller = Api.of(owner)
    assert caller.post(at(invoice)).status_code == 202
    assert_problem(caller.post(at(invoice)), 409, "already_running")
    silent = replays.last_replay(invoice)
    assert silent is not None
    gone = timezone.now() - replays.STALLED_AFTER - timedelta(seconds=1)
    replays._store(invoice, replays.replace(silent, noted_at=gone))
    said = caller.get(at(invoice)).json()["replay"]
    assert (said["state"], said["error"]) == ("failed", "The replay has ended without a result. Start it again.")
    assert caller.post(at(invoice)).status_code == 202 and len(queued) == 2


def test_the_installation_replays_one_invoice_and_the_next_one_waits(invoice: Invoice, owner: Member) -> None:
    Api.of(owner).post(at(invoice))
    taken, done = threading.Event(), threading.Event()

    def another_worker() -> None:
        with exclusive_lock(replays.LOCK):
            taken.set()
            done.wait(30)
        connection.close()

    worker = threading.Thread(target=another_worker)
    worker.start()
    assert taken.wait(30)
    try:
        with pytest.raises(Busy):  # a worker tries again; a caller gets the error
            tasks.replay_invoice(invoice.pk)
    finally:
        done.set()
        worker.join()
    assert replays.replay_status(invoice, timezone.now()).state == "queued"
    tasks.replay_invoice(invoice.pk)
    assert replays.replay_status(invoice, timezone.now()).state == "done"


def test_a_lake_that_cannot_be_read_is_said_without_where_it_is(
    invoice: Invoice, owner: Member, tmp_path: Path
) -> None:
    for file in (tmp_path / "lake").rglob("*.parquet"):
        file.write_bytes(b"nothing")
    Api.of(owner).post(at(invoice))
    replays.run(invoice.pk)
    shown = replays.replay_status(invoice, timezone.now())
    assert (shown.state, shown.error) == ("failed", "The lake cannot be read.")


def test_a_period_that_the_lake_does_not_cover_is_refused_and_a_dry_run_queues_nothing(
    invoice: Invoice, owner: Member, queued: list[str]
) -> None:
    assert Api.of(owner).post(f"{at(invoice)}?dry_run=true").status_code == 202
    assert queued == [] and replays.last_replay(invoice) is None
    LakeFile.objects.all().delete()
    assert_problem(Api.of(owner).post(at(invoice)), 409, "not_covered")


def test_a_worker_that_cannot_be_reached_is_said(
    invoice: Invoice, owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(_invoice_id: str) -> None:
        raise OperationalError

    monkeypatch.setattr(replays, "enqueue", unreachable)
    assert Api.of(owner).post(at(invoice)).status_code == 202
    assert replays.replay_status(invoice, timezone.now()).state == "failed"


def test_nobody_else_replays_an_invoice(invoice: Invoice, queued: list[str]) -> None:
    assert_problem(Api.of(make_member()).post(at(invoice)), 404, "not_found")
    stranger, viewer = make_member(), make_member(Role.VIEWER, invoice.tenant)
    assert_problem(Api.of(viewer).post(at(invoice)), 403, "permission_denied")
    for member, status in ((stranger, 404), (viewer, 403)):
        browser = Client()
        browser.force_login(member.user)
        page = reverse("page-invoice-replay", args=[invoice.pk])
        assert (browser.get(page).status_code, browser.post(page).status_code) == (status, status)
    assert queued == []


def test_the_page_offers_the_replay_follows_it_and_shows_its_result(
    invoice: Invoice, owner: Member, queued: list[str]
) -> None:
    browser = Client()
    browser.force_login(owner.user)
    page, part = (reverse(name, args=[invoice.pk]) for name in ("page-invoice", "page-invoice-replay"))
    assert "Replay in the background" in browser.get(f"{page}?recompute").content.decode()
    assert browser.post(part).status_code == 302 and queued == [invoice.pk]
    assert "waits for the worker" in browser.get(f"{page}?recompute").content.decode()
    assert "hx-trigger" in browser.get(part).content.decode()
    replays.run(invoice.pk)
    shown = browser.get(part).content.decode()
    assert "hx-trigger" not in shown and "Show the result" in shown
    assert "Replayed from the lake" in browser.get(f"{page}?recompute").content.decode()
    strict: Any = Client(enforce_csrf_checks=True)
    strict.force_login(owner.user)
    assert strict.post(part).status_code == 403
