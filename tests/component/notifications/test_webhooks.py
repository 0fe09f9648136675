"""/webhooks: isolated by tenant, limited, and never into our own network."""

from __future__ import annotations

import pytest
from django.utils import timezone

from notifications.models import WebhookDelivery, WebhookEndpoint, WebhookEvent
from notifications.webhooks import services
from tenants.actors import member_actor
from tenants.choices import Role, Scope
from tenants.models import Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db


@pytest.fixture()
def owner() -> Member:
    return make_member()


def endpoint(owner: Member, url: str) -> tuple[WebhookEndpoint, str]:
    return services.create_endpoint(acting=member_actor(owner), url=url)


def send_test(owner: Member, found: WebhookEndpoint) -> WebhookDelivery:
    return services.send_test(acting=member_actor(owner), endpoint=found)


class TestEndpointsOfWebhooks(EndpointCases):
    cases = (
        Case("GET", "/webhooks", Scope.BILLING_READ),
        Case("POST", "/webhooks", Scope.BILLING_WRITE, body={"url": "https://example.com/hook"}, status=201),
        Case("GET", "/webhooks/{webhook}", Scope.BILLING_READ),
        Case("PATCH", "/webhooks/{webhook}", Scope.BILLING_WRITE, body={"is_enabled": False}),
        Case("DELETE", "/webhooks/{webhook}", Scope.BILLING_WRITE, status=204),
        Case("POST", "/webhooks/{webhook}/rotate-secret", Scope.BILLING_WRITE),
        Case("POST", "/webhooks/{webhook}/test", Scope.BILLING_WRITE, status=201, audited=False),
        Case("GET", "/webhooks/{webhook}/deliveries", Scope.BILLING_READ),
        Case("POST", "/webhooks/{webhook}/deliveries/{delivery}/resend", Scope.BILLING_WRITE, audited=False),
    )

    def places(self, owner: Member) -> dict[str, str]:
        found, _ = endpoint(owner, "https://example.com/")
        made = send_test(owner, found)
        WebhookDelivery.objects.update(state="failed", finished_at=timezone.now())
        return {"webhook": found.pk, "delivery": made.pk}


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "https://127.0.0.1/", "https://10.0.0.1/", "https://169.254.169.254/latest", "ftp://x/",
        "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://user@example.com/", "https://example.com:22/",
        "https://0.0.0.0/", "https://[64:ff9b::a00:1]/", "", "https://example.com/#x",
    ],
)  # fmt: skip
def test_an_address_inside_a_network_is_refused_when_it_is_named(owner: Member, url: str) -> None:
    assert_problem(Api.of(owner).post("/webhooks", {"url": url}), 400, "invalid_request")
    found = endpoint(owner, "https://example.com/")[0]
    assert_problem(Api.of(owner).patch(f"/webhooks/{found.pk}", {"url": url}), 400, "invalid_request")
    assert WebhookEndpoint.objects.get().url == "https://example.com/"


def test_another_tenants_webhook_and_deliveries_are_not_found(owner: Member) -> None:
    found, _ = endpoint(owner, "https://example.com/")
    made = send_test(owner, found)
    stranger = Api.of(make_member())
    for answer in (
        stranger.get(f"/webhooks/{found.pk}"), stranger.patch(f"/webhooks/{found.pk}", {"is_enabled": False}),
        stranger.delete(f"/webhooks/{found.pk}"), stranger.post(f"/webhooks/{found.pk}/rotate-secret"),
        stranger.post(f"/webhooks/{found.pk}/test"), stranger.get(f"/webhooks/{found.pk}/deliveries"),
        stranger.post(f"/webhooks/{found.pk}/deliveries/{made.pk}/resend"),
    ):  # fmt: skip
        assert_problem(answer, 404, "not_found")


def test_an_address_of_another_webhook_of_the_tenant_is_refused_as_taken(owner: Member) -> None:
    endpoint(owner, "https://example.com/1")
    second, _ = endpoint(owner, "https://example.com/2")
    at = f"/webhooks/{second.pk}"
    assert_problem(Api.of(owner).patch(at, {"url": "https://example.com/1"}), 409, "name_taken")
    assert Api.of(owner).patch(at, {"url": "https://example.com/2"}).status_code == 200


def test_webhooks_and_what_waits_for_them_are_bounded(owner: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ENDPOINTS_PER_TENANT_MAX", 2)
    monkeypatch.setattr(services, "PENDING_PER_ENDPOINT_MAX", 3)
    api = Api.of(owner)
    made = [api.post("/webhooks", {"url": f"https://example.com/{number}"}) for number in range(3)]
    assert [answer.status_code for answer in made[:2]] == [201, 201] and made[2].status_code >= 400
    assert_problem(api.post("/webhooks", {"url": "https://example.com/0"}), made[2].status_code)
    at = f"/webhooks/{made[0].json()['id']}/test"
    assert [api.post(at).status_code for _ in range(4)] == [201, 201, 201, 409]


def test_a_delivery_is_sent_again_as_a_test_is_only_if_the_webhook_is_on_and_has_room(
    owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "PENDING_PER_ENDPOINT_MAX", 1)
    found, _ = endpoint(owner, "https://example.com/")
    finished = send_test(owner, found)
    WebhookDelivery.objects.update(state="failed", finished_at=timezone.now())
    send_test(owner, found)
    api, again = Api.of(owner), f"/webhooks/{found.pk}/deliveries/{finished.pk}/resend"

    assert_problem(api.post(again), 409, "too_many")
    WebhookDelivery.objects.exclude(pk=finished.pk).delete()
    api.patch(f"/webhooks/{found.pk}", {"is_enabled": False})
    assert_problem(api.post(again), 409, "disabled")
    api.patch(f"/webhooks/{found.pk}", {"is_enabled": True})
    assert api.post(again).status_code == 200


ABOUT_A_GROUP = {"kind": "consumer_lag", "group_id": "billing", "value": 1234}
ABOUT_STORAGE = {"kind": "storage_used", "group_id": "", "value": 85}


def publish(owner: Member) -> int:
    """Queues one alert about a consumer group, one about storage, and an invoice."""
    now = timezone.now()
    return sum(
        services.publish(owner.tenant, event, payload, now)
        for event, payload in (
            (WebhookEvent.ALERT_FIRING, ABOUT_A_GROUP),
            (WebhookEvent.ALERT_FIRING, ABOUT_STORAGE),
            (WebhookEvent.INVOICE_PAID, {"number": "1"}),
        )
    )


def shown(api: Api, found: WebhookEndpoint) -> list[str]:
    items = api.get(f"/webhooks/{found.pk}/deliveries").json()["items"]
    return sorted(item["payload"]["data"].get("kind", "") for item in items)


def test_deliveries_about_a_group_are_hidden_from_who_may_not_see_groups(owner: Member) -> None:
    found, _ = endpoint(owner, "https://example.com/")
    publish(owner)
    about_a_group = WebhookDelivery.objects.get(payload__data__kind="consumer_lag")
    WebhookDelivery.objects.update(state="failed", finished_at=timezone.now())
    finance = make_member(Role.FINANCE, owner.tenant)

    assert shown(Api.of(owner), found) == ["", "consumer_lag", "storage_used"]
    for without_groups in (Api.of(finance), Api.of(owner, [Scope.BILLING_READ, Scope.BILLING_WRITE])):
        assert shown(without_groups, found) == ["", "storage_used"]
        again = f"/webhooks/{found.pk}/deliveries/{about_a_group.pk}/resend"
        assert_problem(without_groups.post(again), 404, "not_found")

    page = Api(user=finance.user).client.get(f"/webhooks/{found.pk}/")
    assert page.status_code == 200 and about_a_group.pk not in page.content.decode()
    page = Api(user=owner.user).client.get(f"/webhooks/{found.pk}/")
    assert about_a_group.pk in page.content.decode()


def test_alerts_about_a_group_are_not_sent_where_somebody_without_the_right_to_see_groups_sends_them(
    owner: Member,
) -> None:
    """Neither to an address that such a person adds, nor to one that such a person puts in place of another."""
    finance = Api.of(make_member(Role.FINANCE, owner.tenant))
    made = finance.post("/webhooks", {"url": "https://example.com/"}).json()
    assert made["has_group_alerts"] is False
    assert publish(owner) == 2

    Api.of(owner).patch(f"/webhooks/{made['id']}", {"url": "https://example.com/owners"})
    assert publish(owner) == 3
    finance.patch(f"/webhooks/{made['id']}", {"is_enabled": True})
    assert publish(owner) == 3
    finance.patch(f"/webhooks/{made['id']}", {"url": "https://example.com/"})
    assert not WebhookDelivery.objects.filter(payload__data__kind="consumer_lag").exists()
    assert publish(owner) == 2


def test_a_delivery_about_a_group_is_not_sent_again_to_an_address_that_gets_none(owner: Member) -> None:
    found, _ = endpoint(owner, "https://example.com/")
    publish(owner)
    about_a_group = WebhookDelivery.objects.get(payload__data__kind="consumer_lag")
    WebhookDelivery.objects.update(state="delivered", finished_at=timezone.now())
    Api.of(make_member(Role.FINANCE, owner.tenant)).patch(f"/webhooks/{found.pk}", {"url": "https://example.com/2"})

    again = f"/webhooks/{found.pk}/deliveries/{about_a_group.pk}/resend"
    assert_problem(Api.of(owner).post(again), 409, "no_group_alerts")
