"""Routes of billing below /api/v1/."""

from django.urls import path

from billing.api import (
    budgets,
    details,
    discounts,
    invoices,
    ledger,
    operator_ledger,
    pricing,
    views,
)

urlpatterns = [
    path("plans", views.PlanCollection.as_view()),
    path("operator/plans/<str:plan>/prices", pricing.PlanPriceCollection.as_view()),
    path("operator/tenants/<str:tenant_id>/currency", pricing.TenantCurrency.as_view()),
    path("operator/tenants/<str:tenant_id>/tax-changes", pricing.TaxChangeCollection.as_view()),
    path("operator/tenants/<str:tenant_id>/tax-changes/<str:change_id>", pricing.TaxChangeDetail.as_view()),
    path("operator/tenants/<str:tenant_id>/ledger", operator_ledger.OperatorLedgerCollection.as_view()),
    path("operator/tenants/<str:tenant_id>/ledger/balances", operator_ledger.OperatorBalanceCollection.as_view()),
    path("operator/tenants/<str:tenant_id>/refunds", operator_ledger.RefundCollection.as_view()),
    path("operator/invoices/<str:invoice_id>/close", operator_ledger.OperatorInvoiceClosing.as_view()),
    path("operator/invoices/<str:invoice_id>/credit", operator_ledger.OperatorInvoiceCredit.as_view()),
    path("prices:quote", views.PriceQuote.as_view()),
    path("instances/<str:instance_id>/usage", views.InstanceUsage.as_view()),
    path("discounts", discounts.DiscountCollection.as_view()),
    path("budgets", budgets.BudgetCollection.as_view()),
    path("budgets/<str:budget_id>", budgets.BudgetDetail.as_view()),
    path("alerts", budgets.AlertCollection.as_view()),
    path("costs", invoices.CostCollection.as_view()),
    path("billing-details", details.BillingDetails.as_view()),
    path("ledger", ledger.LedgerCollection.as_view()),
    path("ledger/balances", ledger.BalanceCollection.as_view()),
    path("invoices", invoices.InvoiceCollection.as_view()),
    path("invoices/draft", invoices.InvoiceDraft.as_view()),
    path("invoices/<str:invoice_id>", invoices.InvoiceDetail.as_view()),
    path("invoices/<str:invoice_id>/pdf", invoices.InvoicePdf.as_view()),
    path("invoices/<str:invoice_id>/xml", invoices.InvoiceXml.as_view()),
    path("invoices/<str:invoice_id>/lines", invoices.InvoiceLines.as_view()),
    path("invoices/<str:invoice_id>/lines/<int:position>/hours", invoices.InvoiceLineHours.as_view()),
    path("invoices/<str:invoice_id>/lines/<int:position>/minutes", invoices.InvoiceLineMinutes.as_view()),
    path("invoices/<str:invoice_id>/recompute", invoices.InvoiceRecomputation.as_view()),
]
