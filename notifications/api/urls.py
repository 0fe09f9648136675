"""Routes of notifications below /api/v1/."""

from django.urls import path

from notifications.api import alert_rules, webhooks

urlpatterns = [
    path("alert-rules", alert_rules.AlertRuleCollection.as_view()),
    path("alert-rules/<str:rule_id>", alert_rules.AlertRuleDetail.as_view()),
    path("alert-rules/<str:rule_id>/firings", alert_rules.AlertRuleHistory.as_view()),
    path("alert-firings", alert_rules.AlertFiringCollection.as_view()),
    path("webhooks", webhooks.WebhookCollection.as_view()),
    path("webhooks/<str:webhook_id>", webhooks.WebhookDetail.as_view()),
    path("webhooks/<str:webhook_id>/rotate-secret", webhooks.WebhookRotation.as_view()),
    path("webhooks/<str:webhook_id>/test", webhooks.WebhookTest.as_view()),
    path("webhooks/<str:webhook_id>/deliveries", webhooks.DeliveryCollection.as_view()),
    path("webhooks/<str:webhook_id>/deliveries/<str:delivery_id>/resend", webhooks.DeliveryAgain.as_view()),
]
