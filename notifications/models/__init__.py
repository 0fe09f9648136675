"""Tables of notifications, one module for each kind of data. They have the names that they got as part of billing."""

from notifications.models.alerts import OF_CLUSTERS, OF_TENANTS, AlertFiring, AlertKind, AlertRule, FiringEnd
from notifications.models.budgets import BudgetAlert
from notifications.models.mails import MailNotice, NoticeKind
from notifications.models.queues import Queue, QueueTurn
from notifications.models.webhooks import DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookEvent

__all__ = [
    "OF_CLUSTERS",
    "OF_TENANTS",
    "AlertFiring",
    "AlertKind",
    "AlertRule",
    "BudgetAlert",
    "DeliveryState",
    "FiringEnd",
    "MailNotice",
    "NoticeKind",
    "Queue",
    "QueueTurn",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEvent",
]
