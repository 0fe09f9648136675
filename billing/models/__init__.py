"""Tables of billing, one module for each kind of data."""

from billing.models.action_items import ActionItem, ActionKind, UsageCheck
from billing.models.agreements import BillingProfile, Discount, InvoiceSeries, Seller, TaxChange
from billing.models.budgets import Budget
from billing.models.coupons import Coupon
from billing.models.dunning import InvoiceReminder, UnpaidSuspension
from billing.models.idle import IdleWarning
from billing.models.invoices import OVERDUE, Invoice, InvoiceKind, InvoiceLine, InvoiceState, UntakenMail
from billing.models.lake import LakeFile
from billing.models.ledger import LedgerEntry, LedgerKind
from billing.models.payments import Payment, PaymentProblem
from billing.models.plans import Plan, Price, PriceComponent
from billing.models.usage import (
    NEVER,
    NO_BROKER,
    Direction,
    ProblemKind,
    UsageCounter,
    UsageDay,
    UsageHour,
    UsageIncarnation,
    UsageMinute,
    UsageOffset,
    UsagePoint,
    UsageProblem,
    UsageRevision,
)

__all__ = [
    "NEVER",
    "NO_BROKER",
    "OVERDUE",
    "ActionItem",
    "ActionKind",
    "BillingProfile",
    "Budget",
    "Coupon",
    "Direction",
    "Discount",
    "IdleWarning",
    "Invoice",
    "InvoiceKind",
    "InvoiceLine",
    "InvoiceReminder",
    "InvoiceSeries",
    "InvoiceState",
    "LakeFile",
    "LedgerEntry",
    "LedgerKind",
    "Payment",
    "PaymentProblem",
    "Plan",
    "Price",
    "PriceComponent",
    "ProblemKind",
    "Seller",
    "TaxChange",
    "UnpaidSuspension",
    "UntakenMail",
    "UsageCheck",
    "UsageCounter",
    "UsageDay",
    "UsageHour",
    "UsageIncarnation",
    "UsageMinute",
    "UsageOffset",
    "UsagePoint",
    "UsageProblem",
    "UsageRevision",
]
