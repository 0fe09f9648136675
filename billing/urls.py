"""Console pages of billing; pages about one instance have its address as prefix."""

from __future__ import annotations

from django.urls import path, re_path

from billing.views import (
    alert_rules,
    archives,
    budgets,
    buying,
    costs,
    coupons,
    details,
    invoices,
    ledger,
    payments,
    usage,
    webhooks,
)

urlpatterns = [
    path("instances/new/", buying.create_page, name="page-instance-create"),
    path("price/", buying.price_part, name="page-price"),
    path("payments/webhook", payments.payment_webhook, name="payment-webhook"),
    path("usage/", costs.account_usage_page, name="page-account-usage"),
    path("usage/costs.csv", costs.costs_csv, name="page-costs-csv"),
    path("budgets/", budgets.budgets_page, name="page-budgets"),
    path("budgets/<str:budget_id>/delete/", budgets.delete_budget, name="page-budget-delete"),
    path("archives/", archives.archives_page, name="page-archives"),
    path("archives/<str:archive_id>/", archives.archive_page, name="page-archive"),
    re_path(
        r"^archives/(?P<archive_id>[a-z0-9-]+)/(?P<act>run|pause|resume|delete)/$",
        archives.change_archive,
        name="page-archive-act",
    ),
    path("alert-rules/", alert_rules.alert_rules_page, name="page-alert-rules"),
    path("alert-rules/<str:rule_id>/", alert_rules.alert_rule_page, name="page-alert-rule"),
    re_path(
        r"^alert-rules/(?P<rule_id>[a-z0-9-]+)/(?P<act>pause|resume|delete)/$",
        alert_rules.act_on_alert_rule,
        name="page-alert-rule-act",
    ),
    path("webhooks/", webhooks.webhooks_page, name="page-webhooks"),
    path("webhooks/<str:webhook_id>/", webhooks.webhook_page, name="page-webhook"),
    path("webhooks/<str:webhook_id>/turn/", webhooks.turn_webhook, name="page-webhook-turn"),
    path("webhooks/<str:webhook_id>/rotate/", webhooks.rotate_webhook, name="page-webhook-rotate"),
    path("webhooks/<str:webhook_id>/test/", webhooks.test_webhook, name="page-webhook-test"),
    path("webhooks/<str:webhook_id>/delete/", webhooks.delete_webhook, name="page-webhook-delete"),
    path(
        "webhooks/<str:webhook_id>/deliveries/<str:delivery_id>/resend/",
        webhooks.resend_delivery,
        name="page-webhook-resend",
    ),
    path("invoices/", invoices.invoices_page, name="page-invoices"),
    path("invoices/details/", details.details_page, name="page-billing-details"),
    path("invoices/ledger/", ledger.ledger_page, name="page-ledger"),
    path("invoices/ledger.csv", ledger.ledger_csv, name="page-ledger-csv"),
    path("invoices/redeem/", coupons.redeem_coupon, name="page-coupon-redeem"),
    path("invoices/<str:invoice_id>/", invoices.invoice_page, name="page-invoice"),
    path("invoices/<str:invoice_id>/lines.csv", invoices.invoice_csv, name="page-invoice-csv"),
    path("invoices/<str:invoice_id>/invoice.pdf", invoices.invoice_pdf, name="page-invoice-pdf"),
    path("invoices/<str:invoice_id>/invoice.xml", invoices.invoice_xml, name="page-invoice-xml"),
    path("invoices/<str:invoice_id>/lines/<int:position>/", invoices.line_page, name="page-invoice-line"),
    path("instances/<str:instance_id>/resize/", buying.resize_page, name="page-instance-resize"),
    path("instances/<str:instance_id>/cost/", buying.cost_part, name="page-cost-part"),
    path("instances/<str:instance_id>/usage/", usage.usage_page, name="page-usage"),
    path("instances/<str:instance_id>/history.json", usage.history, name="page-traffic-history"),
]
