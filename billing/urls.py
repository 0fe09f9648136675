"""Console pages of billing; pages about one instance have its address as prefix."""

from __future__ import annotations

from django.urls import path

from billing.views import (
    budgets,
    buying,
    costs,
    coupons,
    details,
    invoices,
    ledger,
    payments,
    usage,
)

urlpatterns = [
    path("instances/new/", buying.create_page, name="page-instance-create"),
    path("price/", buying.price_part, name="page-price"),
    path("payments/webhook", payments.payment_webhook, name="payment-webhook"),
    path("usage/", costs.account_usage_page, name="page-account-usage"),
    path("usage/costs.csv", costs.costs_csv, name="page-costs-csv"),
    path("budgets/", budgets.budgets_page, name="page-budgets"),
    path("budgets/<str:budget_id>/", budgets.budget_page, name="page-budget"),
    path("budgets/<str:budget_id>/delete/", budgets.delete_budget, name="page-budget-delete"),
    path("invoices/", invoices.invoices_page, name="page-invoices"),
    path("invoices/details/", details.details_page, name="page-billing-details"),
    path("invoices/ledger/", ledger.ledger_page, name="page-ledger"),
    path("invoices/ledger.csv", ledger.ledger_csv, name="page-ledger-csv"),
    path("invoices/redeem/", coupons.redeem_coupon, name="page-coupon-redeem"),
    path("invoices/<str:invoice_id>/", invoices.invoice_page, name="page-invoice"),
    path("invoices/<str:invoice_id>/replay/", invoices.replay_part, name="page-invoice-replay"),
    path("invoices/<str:invoice_id>/lines.csv", invoices.invoice_csv, name="page-invoice-csv"),
    path("invoices/<str:invoice_id>/invoice.pdf", invoices.invoice_pdf, name="page-invoice-pdf"),
    path("invoices/<str:invoice_id>/invoice.xml", invoices.invoice_xml, name="page-invoice-xml"),
    path("invoices/<str:invoice_id>/lines/<int:position>/", invoices.line_page, name="page-invoice-line"),
    path("instances/<str:instance_id>/resize/", buying.resize_page, name="page-instance-resize"),
    path("instances/<str:instance_id>/cost/", buying.cost_part, name="page-cost-part"),
    path("instances/<str:instance_id>/usage/", usage.usage_page, name="page-usage"),
    path("instances/<str:instance_id>/history.json", usage.history, name="page-traffic-history"),
]
