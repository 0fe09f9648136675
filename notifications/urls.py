"""Console pages of notifications."""

from __future__ import annotations

from django.urls import path, re_path

from notifications.views import alert_rules, webhooks

urlpatterns = [
    path("alert-rules/", alert_rules.alert_rules_page, name="page-alert-rules"),
    path("alert-rules/<str:rule_id>/", alert_rules.alert_rule_page, name="page-alert-rule"),
    re_path(
        r"^alert-rules/(?P<rule_id>[a-z0-9-]+)/(?P<act>pause|resume|delete)/$",
        alert_rules.act_on_alert_rule,
        name="page-alert-rule-act",
    ),
    path("webhooks/", webhooks.webhooks_page, name="page-webhooks"),
    path("webhooks/<str:webhook_id>/", webhooks.webhook_page, name="page-webhook"),
    path("webhooks/<str:webhook_id>/turn/", webhooks.switch_webhook, name="page-webhook-turn"),
    path("webhooks/<str:webhook_id>/rotate/", webhooks.rotate_webhook, name="page-webhook-rotate"),
    path("webhooks/<str:webhook_id>/test/", webhooks.send_test_delivery, name="page-webhook-test"),
    path("webhooks/<str:webhook_id>/delete/", webhooks.delete_webhook, name="page-webhook-delete"),
    path(
        "webhooks/<str:webhook_id>/deliveries/<str:delivery_id>/resend/",
        webhooks.resend_delivery,
        name="page-webhook-resend",
    ),
]
