"""Deliveries of webhooks to real servers: signed, retried, given up, and without delays for others."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from config.environment import BASE_DIR
from notifications.models import WebhookDelivery, WebhookEndpoint, WebhookEvent
from notifications.webhooks import delivering, pacing, services
from tenants.actors import member_actor
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_member, pytest_generate_tests
from tests.testkit.https_server import HttpsServer, https_server
from tests.testkit.waiting import eventually

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture()
def server(tmp_path: Path, settings: Any) -> Iterator[HttpsServer]:
    """A permitted server that accepts deliveries."""
    with https_server(tmp_path) as running:
        settings.OUTBOUND_PRIVATE_ADDRESSES = (ip_network("127.0.0.0/8"),)
        settings.OUTBOUND_CA_FILE = running.ca_file
        running.answers({"ok": True})
        yield running


@pytest.fixture()
def owner() -> Member:
    return make_member()


def endpoint(owner: Member, url: str) -> tuple[WebhookEndpoint, str]:
    return services.create_endpoint(acting=member_actor(owner), url=url)


def send_test(owner: Member, found: WebhookEndpoint) -> WebhookDelivery:
    return services.send_test(acting=member_actor(owner), endpoint=found)


def sent(server: HttpsServer) -> tuple[dict[str, str], bytes]:
    head, _, body = server.requests[-1].partition(b"\r\n\r\n")
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    return {name.lower(): value for name, value in lines}, body


def verified(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """True if a receiver accepts the signature."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(wanted, each) for each in headers["webhook-signature"].split())


def as_documented() -> Callable[[str, dict[str, str], bytes], bool]:
    """Returns the function that the how-to gives to receivers."""
    page = (BASE_DIR / "docs" / "how-to" / "hear-of-what-it-costs.md").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], found)
    checked: Callable[[str, dict[str, str], bytes], bool] = found["is_genuine"]
    return checked


def test_an_event_arrives_signed_with_the_secret_that_was_shown_once(owner: Member, server: HttpsServer) -> None:
    api = Api.of(owner)
    made = api.post("/webhooks", {"url": server.url}).json()
    assert "secret" not in api.get(f"/webhooks/{made['id']}").json()
    assert made["secret"] not in str(WebhookEndpoint.objects.values())

    delivery = api.post(f"/webhooks/{made['id']}/test").json()
    assert delivering.deliver(timezone.now()) == 1

    headers, body = sent(server)
    assert server.requests[-1].startswith(b"POST /keys ")
    assert headers["webhook-id"] == delivery["id"] and verified(made["secret"], headers, body)
    assert json.loads(body)["type"] == "webhook.test"
    assert as_documented()(made["secret"], headers, body) and not as_documented()(made["secret"], headers, body + b" ")
    (listed,) = api.get(f"/webhooks/{made['id']}/deliveries").json()["items"]
    assert (listed["state"], listed["status"], listed["attempts"], listed["answer"]) == (
        "delivered",
        200,
        1,
        '{"ok": true}',
    )
    assert delivering.deliver(timezone.now()) == 0


def test_after_a_rotation_both_secrets_verify_for_a_day(owner: Member, server: HttpsServer) -> None:
    found, first = endpoint(owner, server.url)
    second = services.rotate_secret(acting=member_actor(owner), endpoint=found)
    send_test(owner, found)
    delivering.deliver(timezone.now())
    assert verified(first, *sent(server)) and verified(second, *sent(server))

    WebhookEndpoint.objects.update(former_until=timezone.now() - timedelta(seconds=1))
    send_test(owner, found)
    delivering.deliver(timezone.now())
    assert verified(second, *sent(server)) and not verified(first, *sent(server))


def test_a_failed_delivery_is_retried_later_and_given_up_at_last(owner: Member, server: HttpsServer) -> None:
    server.answers({"no": True}, "500 Internal Server Error")
    found, _ = endpoint(owner, server.url)
    made = send_test(owner, found)
    now = timezone.now()
    for number in range(pacing.ATTEMPTS_MAX):
        assert delivering.deliver(now) == 1, number
        assert delivering.deliver(now) == 0
        now += timedelta(days=2)
    made.refresh_from_db()
    assert (made.state, made.status, made.attempts) == ("failed", 500, pacing.ATTEMPTS_MAX)
    assert len({request.partition(b"webhook-id: ")[2][:12] for request in server.requests}) == 1

    server.answers({})
    services.resend(acting=member_actor(owner), delivery=made)
    assert delivering.deliver(now) == 1
    made.refresh_from_db()
    assert made.state == "delivered"


def test_an_endpoint_that_takes_nothing_is_turned_off_and_then_left_alone(owner: Member, server: HttpsServer) -> None:
    server.answers({}, "404 Not Found")
    found, _ = endpoint(owner, server.url)
    WebhookEndpoint.objects.update(failed_in_a_row=pacing.FAILED_IN_A_ROW_MAX - 1)
    made = send_test(owner, found)
    WebhookDelivery.objects.update(attempts=pacing.ATTEMPTS_MAX - 1)
    delivering.deliver(timezone.now())
    found.refresh_from_db()
    assert not found.is_enabled
    assert services.publish(found.tenant, WebhookEvent.TEST, {}, timezone.now()) == 0
    assert_problem(Api.of(owner).post(f"/webhooks/{found.pk}/test"), 409, "disabled")
    assert WebhookDelivery.objects.get().pk == made.pk


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"])
def test_a_redirect_is_not_followed_and_is_no_success(owner: Member, server: HttpsServer, status: str) -> None:
    server.answers({}, status, Location="https://127.0.0.1:1/")
    send_test(owner, endpoint(owner, server.url)[0])
    delivering.deliver(timezone.now())
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.status) == ("pending", int(status[:3])) and len(server.requests) == 1


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f.1", "2130706433", "localhost."])
def test_a_name_that_leads_inside_is_refused_when_it_is_sent(owner: Member, host: str) -> None:
    found, _ = endpoint(owner, f"https://{host}/")
    send_test(owner, found)
    delivering.deliver(timezone.now())
    delivery = WebhookDelivery.objects.get()
    assert (delivery.status, delivery.answer) == (None, "The host has no public address.")


def test_a_long_or_endless_answer_is_cut_and_holds_nobody(owner: Member, server: HttpsServer) -> None:
    server.answers({"x": "y" * 1_000_000})
    send_test(owner, endpoint(owner, server.url)[0])
    delivering.deliver(timezone.now())
    delivery = WebhookDelivery.objects.get()
    assert delivery.state == "delivered" and 0 < len(delivery.answer) <= 1_000


def test_a_tenant_whose_endpoints_are_slow_has_two_places_and_keeps_no_other_waiting(
    owner: Member, server: HttpsServer
) -> None:
    """While the slow tenant's first deliveries run, all of the neighbour's are done, one after the other."""
    with https_server(Path(server.ca_file).parent) as slow:
        slow.stall_until = threading.Event()
        slow.answers({})
        hostile = make_member()
        for number in range(5):
            send_test(hostile, endpoint(hostile, f"https://127.0.0.1:{slow.port}/{number}")[0])
        found, _ = endpoint(owner, server.url)
        for _ in range(3):
            send_test(owner, found)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(_deliver)
            eventually(lambda: len(slow.requests) == 2 and len(server.requests) == 3, what="the neighbour's deliveries")
            assert not run.done() and len(slow.requests) == 2
            assert delivering.deliver(timezone.now()) == 0, "one run at a time"
            slow.stall_until.set()
            assert run.result() == 8


def test_a_delivery_that_is_queued_while_a_run_waits_for_a_slow_server_is_sent_by_that_run(
    owner: Member, server: HttpsServer
) -> None:
    with https_server(Path(server.ca_file).parent) as slow:
        slow.stall_until = threading.Event()
        slow.answers({})
        neighbour = make_member()
        send_test(neighbour, endpoint(neighbour, f"https://127.0.0.1:{slow.port}/")[0])
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(_deliver)
            eventually(lambda: len(slow.requests) == 1, what="the slow server's delivery")
            made = send_test(owner, endpoint(owner, server.url)[0])
            try:
                eventually(lambda: len(server.requests) == 1 or run.done(), what="the delivery queued meanwhile")
            finally:
                slow.stall_until.set()
            assert run.result() == 2
    made.refresh_from_db()
    assert made.finished_at is not None and made.finished_at >= made.created_at


def _deliver() -> int:
    try:
        return delivering.deliver(timezone.now())
    finally:
        connections.close_all()


def test_an_endpoint_that_is_deleted_while_it_is_asked_leaves_nothing(owner: Member, server: HttpsServer) -> None:
    server.stall_until = threading.Event()
    found, _ = endpoint(owner, server.url)
    send_test(owner, found)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(_deliver)
        eventually(lambda: len(server.requests) == 1, what="the delivery")
        services.delete_endpoint(acting=member_actor(owner), endpoint=found)
        server.stall_until.set()
        assert run.result() == 1
    assert not WebhookDelivery.objects.exists()


def test_finished_deliveries_are_forgotten_after_a_month(owner: Member, server: HttpsServer) -> None:
    found, _ = endpoint(owner, server.url)
    send_test(owner, found)
    delivering.deliver(timezone.now())
    waiting = send_test(owner, found)
    assert services.delete_old_deliveries(timezone.now() + timedelta(days=31)) == 1
    assert WebhookDelivery.objects.get().pk == waiting.pk
