"""URLs of the operator pages about money, below /operator/billing/invoice/."""

from __future__ import annotations

from django.urls import URLPattern, path

from billing.admin_views import ledger, margins, month, overdue, revenue


def money_urls() -> list[URLPattern]:
    """Returns the URLs; they must precede those of the admin, which accept any text as id of an invoice."""
    return [
        path("revenue/", revenue.revenue_page, name="billing_revenue"),
        path("revenue.csv", revenue.revenue_csv, name="billing_revenue_csv"),
        path("overdue/", overdue.overdue_page, name="billing_overdue"),
        path("overdue.csv", overdue.overdue_csv, name="billing_overdue_csv"),
        path("margins/", margins.margins_page, name="billing_margins"),
        path("month/", month.month_page, name="billing_month"),
        path("month/issue/", month.issue_month, name="billing_month_issue"),
        path("month/late/", month.find_late_usage, name="billing_month_late"),
        path("credits/", ledger.credits_page, name="billing_credits"),
        path("credits/<str:tenant_id>/<str:currency>/refund/", ledger.refund_page, name="billing_refund"),
        path("<str:invoice_id>/credit/", ledger.credit_page, name="billing_credit_note"),
        path("<str:invoice_id>/paid/", overdue.mark_paid, name="billing_mark_paid"),
    ]
