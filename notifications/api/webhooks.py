"""REST resources of webhooks (`/webhooks`) and their deliveries."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from notifications import access
from notifications.models import WebhookDelivery, WebhookEndpoint
from notifications.models.webhooks import URL_CHARS_MAX
from notifications.webhooks import services
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.api.strict import Flag, StrictSerializer, Text
from tenants.choices import Scope


class WebhookOut(serializers.ModelSerializer[WebhookEndpoint]):
    """Webhook: an address that receives events about budgets, alerts and invoices; about consumer groups if
    `has_group_alerts`.
    """

    class Meta:
        model = WebhookEndpoint
        fields = ("id", "url", "is_enabled", "has_group_alerts", "failed_in_a_row", "created_at")


class WebhookMade(WebhookOut):
    """Webhook with its secret, which is returned only once."""

    secret = serializers.SerializerMethodField(help_text="It is shown this once.")

    class Meta(WebhookOut.Meta):
        fields = (*WebhookOut.Meta.fields, "secret")

    def get_secret(self, webhook: WebhookEndpoint) -> str | None:
        return self.context["view"].secret


class WebhookIn(StrictSerializer):
    url = Text(
        trim_whitespace=True, min_length=1, max_length=URL_CHARS_MAX, help_text="By https:// to a public address."
    )


class WebhookChange(StrictSerializer):
    url = Text(trim_whitespace=True, min_length=1, max_length=URL_CHARS_MAX, required=False)
    is_enabled = Flag(required=False)


class DeliveryOut(serializers.ModelSerializer[WebhookDelivery]):
    """Delivery of one event: `id` is its `webhook-id`, `answer` the beginning of the response or the reason of the
    failure.
    """

    payload = serializers.DictField()

    class Meta:
        model = WebhookDelivery
        fields = (
            "id", "event", "payload", "state", "attempts", "next_at", "status", "answer", "created_at", "finished_at",
        )  # fmt: skip


class WebhookCollection(ApiView):
    tag = "Webhooks"

    @endpoint("list_webhooks", Scope.BILLING_READ, page_item=WebhookOut)
    def get(self, request: Request) -> Response:
        """List webhooks."""
        return self.page(access.webhooks_of(self.tenant), WebhookOut, order=("created_at", "id"))

    @endpoint(
        "create_webhook", Scope.BILLING_WRITE, body=WebhookIn, returns=WebhookMade, status=201,
        secret_fields=("secret",), errors=(409, 422),
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Create a webhook.

        It receives `budget.alert`, `alert.firing`, `alert.resolved` and events of invoices (`invoice.issued`,
        `.credited`, `.overdue`, `.paid`, `.settled`, `.written_off`), signed by Standard Webhooks (`webhook-id`,
        `webhook-timestamp`, `webhook-signature`). The response contains the secret, once. A delivery is tried nine
        times in two days; after five failed deliveries in a row the webhook is turned off. Alerts about consumer
        groups are sent to it if its address is set with the scope `groups:read`.
        """
        webhook, secret = services.create_endpoint(acting=self.actor, **self.body)
        self.secret = None if self.dry_run else secret
        return self.one(webhook, WebhookMade, status=201, location=f"{API_ROOT}/webhooks/{webhook.pk}")


class WebhookDetail(ApiView):
    tag = "Webhooks"

    @endpoint("get_webhook", Scope.BILLING_READ, returns=WebhookOut)
    def get(self, request: Request, webhook_id: str) -> Response:
        """Read a webhook."""
        return self.one(access.webhook(self.actor, webhook_id), WebhookOut)

    @endpoint(
        "change_webhook", Scope.BILLING_WRITE, body=WebhookChange, returns=WebhookOut, requires_if_match=True,
        errors=(409,),
    )  # fmt: skip
    def patch(self, request: Request, webhook_id: str) -> Response:
        """Change a webhook's address, or turn it on or off. Pending deliveries are sent when it is on."""
        webhook = access.webhook(self.actor, webhook_id, lock=True)
        self.require_match(webhook)
        return self.one(services.change_endpoint(acting=self.actor, endpoint=webhook, changes=self.body), WebhookOut)

    @endpoint("delete_webhook", Scope.BILLING_WRITE, status=204, requires_if_match=True)
    def delete(self, request: Request, webhook_id: str) -> Response:
        """Delete a webhook with its deliveries."""
        webhook = access.webhook(self.actor, webhook_id, lock=True)
        self.require_match(webhook)
        services.delete_endpoint(acting=self.actor, endpoint=webhook)
        return self.nothing()


class WebhookRotation(ApiView):
    tag = "Webhooks"

    @endpoint("rotate_webhook_secret", Scope.BILLING_WRITE, returns=WebhookMade, secret_fields=("secret",))
    def post(self, request: Request, webhook_id: str) -> Response:
        """Create a new secret. The previous one also signs for another 24 hours."""
        webhook = access.webhook(self.actor, webhook_id, lock=True)
        secret = services.rotate_secret(acting=self.actor, endpoint=webhook)
        self.secret = None if self.dry_run else secret
        return self.one(webhook, WebhookMade)


class WebhookTest(ApiView):
    tag = "Webhooks"

    @endpoint("test_webhook", Scope.BILLING_WRITE, returns=DeliveryOut, status=201, errors=(409,))
    def post(self, request: Request, webhook_id: str) -> Response:
        """Send a test event to a webhook."""
        webhook = access.webhook(self.actor, webhook_id)
        return self.one(services.send_test(acting=self.actor, endpoint=webhook), DeliveryOut, status=201)


class DeliveryCollection(ApiView):
    tag = "Webhooks"

    @endpoint("list_webhook_deliveries", Scope.BILLING_READ, page_item=DeliveryOut)
    def get(self, request: Request, webhook_id: str) -> Response:
        """List deliveries of the last 30 days, latest first.

        Alerts about consumer groups are included with the scope `groups:read`.
        """
        webhook = access.webhook(self.actor, webhook_id)
        return self.page(access.deliveries_of(self.actor, webhook), DeliveryOut, order=("-created_at", "id"))


class DeliveryAgain(ApiView):
    tag = "Webhooks"

    @endpoint("resend_webhook_delivery", Scope.BILLING_WRITE, returns=DeliveryOut, errors=(409,))
    def post(self, request: Request, webhook_id: str, delivery_id: str) -> Response:
        """Send a finished delivery again under the same id."""
        webhook = access.delivery(self.actor, access.webhook(self.actor, webhook_id), delivery_id)
        return self.one(services.resend(acting=self.actor, delivery=webhook), DeliveryOut)
