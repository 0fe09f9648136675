"""Routes of billing below /api/v1/."""

from django.urls import path

from billing.api import alert_rules, archives, budgets, discounts, invoices, pricing, views, webhooks

urlpatterns = [
    path("plans", views.PlanCollection.as_view()),
    path("operator/plans/<str:plan>/prices", pricing.PlanPriceCollection.as_view()),
    path("operator/tenants/<str:tenant_id>/currency", pricing.TenantCurrency.as_view()),
    path("prices:quote", views.PriceQuote.as_view()),
    path("instances/<str:instance_id>/usage", views.InstanceUsage.as_view()),
    path("discounts", discounts.DiscountCollection.as_view()),
    path("budgets", budgets.BudgetCollection.as_view()),
    path("budgets/<str:budget_id>", budgets.BudgetDetail.as_view()),
    path("alerts", budgets.AlertCollection.as_view()),
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
    path("archives", archives.ArchiveCollection.as_view()),
    path("archives/<str:archive_id>", archives.ArchiveDetail.as_view()),
    path("archives/<str:archive_id>/run", archives.ArchiveRun.as_view()),
    path("archives/<str:archive_id>/files", archives.ArchiveFileCollection.as_view()),
    path("costs", invoices.CostCollection.as_view()),
    path("invoices", invoices.InvoiceCollection.as_view()),
    path("invoices/draft", invoices.InvoiceDraft.as_view()),
    path("invoices/<str:invoice_id>", invoices.InvoiceDetail.as_view()),
    path("invoices/<str:invoice_id>/pdf", invoices.InvoicePdf.as_view()),
    path("invoices/<str:invoice_id>/lines", invoices.InvoiceLines.as_view()),
    path("invoices/<str:invoice_id>/lines/<int:position>/hours", invoices.InvoiceLineHours.as_view()),
    path("invoices/<str:invoice_id>/lines/<int:position>/minutes", invoices.InvoiceLineMinutes.as_view()),
    path("invoices/<str:invoice_id>/recompute", invoices.InvoiceRecomputation.as_view()),
]
