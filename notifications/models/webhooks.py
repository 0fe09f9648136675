"""Webhook endpoints of tenants and their deliveries."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from notifications.models.alerts import AlertKind
from tenants.ids import TypedIdField
from tenants.models import Tenant, Versioned

URL_CHARS_MAX = 500
ANSWER_CHARS_MAX = 1_000
SECRET_CHARS_MAX = 400


class WebhookEvent(models.TextChoices):
    ALERT_FIRING = "alert.firing", _("An alert fires")
    ALERT_RESOLVED = "alert.resolved", _("An alert is resolved")
    BUDGET_ALERT = "budget.alert", _("A budget passed a mark")
    INVOICE_ISSUED = "invoice.issued", _("An invoice was issued")
    INVOICE_CREDITED = "invoice.credited", _("A credit note was issued")
    INVOICE_OVERDUE = "invoice.overdue", _("An invoice is overdue")
    INVOICE_PAID = "invoice.paid", _("An invoice was paid")
    INVOICE_SETTLED = "invoice.settled", _("An invoice was settled")
    INVOICE_WRITTEN_OFF = "invoice.written_off", _("An invoice was written off")
    TEST = "webhook.test", _("A test")


# Deliveries that reveal the name and the lag of a consumer group.
ABOUT_GROUPS = Q(
    event__in=(WebhookEvent.ALERT_FIRING, WebhookEvent.ALERT_RESOLVED), payload__data__kind=AlertKind.CONSUMER_LAG
)


class DeliveryState(models.TextChoices):
    PENDING = "pending", _("Waiting")
    DELIVERED = "delivered", _("Delivered")
    FAILED = "failed", _("Given up")


class WebhookEndpoint(Versioned):
    """Webhook endpoint of a tenant.

    `secret` and `former_secret` are encrypted, not hashed, because signing needs them. The former secret also signs
    until `former_until`. `is_slow` is true if the last response was slow. `has_group_alerts` is false if its address
    was set by an actor without `groups:read`.
    """

    id = TypedIdField("whk")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="webhooks", verbose_name=_("tenant"))
    url = models.CharField(_("address"), max_length=URL_CHARS_MAX)
    secret = models.CharField(max_length=SECRET_CHARS_MAX, editable=False)
    former_secret = models.CharField(max_length=SECRET_CHARS_MAX, blank=True, default="", editable=False)
    former_until = models.DateTimeField(null=True, blank=True, editable=False)
    is_enabled = models.BooleanField(_("enabled"), default=True)
    has_group_alerts = models.BooleanField(
        _("alerts about consumer groups"), default=True, db_default=True, editable=False
    )
    failed_in_a_row = models.PositiveSmallIntegerField(_("failed in a row"), default=0, editable=False)
    tried_at = models.DateTimeField(_("last try"), null=True, editable=False)
    is_slow = models.BooleanField(_("answers slowly"), default=False, db_default=False, editable=False)

    class Meta:
        db_table = "billing_webhookendpoint"
        ordering = ("created_at", "id")
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        constraints = (models.UniqueConstraint(fields=("tenant", "url"), name="webhook_once"),)

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(models.Model):
    """Delivery of one event to one endpoint; its id is the `webhook-id`, which is the same for every attempt."""

    id = TypedIdField("whd")
    endpoint = models.ForeignKey(
        WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries", verbose_name=_("webhook")
    )
    event = models.CharField(_("event"), max_length=24, choices=WebhookEvent.choices)
    payload = models.JSONField(_("payload"))
    state = models.CharField(_("state"), max_length=10, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    attempts = models.PositiveSmallIntegerField(_("tries"), default=0)
    next_at = models.DateTimeField(_("next try"), default=timezone.now)
    status = models.PositiveSmallIntegerField(_("status"), null=True, blank=True)
    answer = models.CharField(_("answer"), max_length=ANSWER_CHARS_MAX, blank=True, default="")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        db_table = "billing_webhookdelivery"
        ordering = ("-created_at", "id")
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        indexes = (
            models.Index(fields=("endpoint", "next_at"), condition=Q(state="pending"), name="webhook_delivery_waiting"),
            models.Index(fields=("endpoint", "-created_at"), name="webhook_delivery_by_endpoint"),
        )

    def __str__(self) -> str:
        return f"{self.event} {self.state}"
