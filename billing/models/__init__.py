"""Tables of billing, one module for each kind of data."""

from billing.models.action_items import ActionItem, ActionKind, UsageCheck
from billing.models.agreements import BillingProfile, Discount, InvoiceSeries, Seller, TaxChange
from billing.models.alerts import (
    OF_CLUSTERS,
    OF_TENANTS,
    AlertFiring,
    AlertKind,
    AlertRule,
    FiringEnd,
    MailNotice,
    NoticeKind,
)
from billing.models.archives import Archive, ArchiveFile, ArchivePartition, ArchiveState, OnTrouble, ValueFormat
from billing.models.budgets import Budget, BudgetAlert
from billing.models.coupons import Coupon
from billing.models.dunning import InvoiceReminder, UnpaidSuspension
from billing.models.idle import IdleWarning
from billing.models.invoices import OVERDUE, Invoice, InvoiceKind, InvoiceLine, InvoiceState, UntakenMail
from billing.models.lake import LakeFile
from billing.models.ledger import LedgerEntry, LedgerKind
from billing.models.payments import Payment, PaymentProblem
from billing.models.plans import Plan, Price, PriceComponent
from billing.models.queues import Queue, QueueTurn
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
from billing.models.webhooks import DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookEvent

__all__ = [
    "NEVER",
    "NO_BROKER",
    "OF_CLUSTERS",
    "OF_TENANTS",
    "OVERDUE",
    "ActionItem",
    "ActionKind",
    "AlertFiring",
    "AlertKind",
    "AlertRule",
    "Archive",
    "ArchiveFile",
    "ArchivePartition",
    "ArchiveState",
    "BillingProfile",
    "Budget",
    "BudgetAlert",
    "Coupon",
    "DeliveryState",
    "Direction",
    "Discount",
    "FiringEnd",
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
    "MailNotice",
    "NoticeKind",
    "OnTrouble",
    "Payment",
    "PaymentProblem",
    "Plan",
    "Price",
    "PriceComponent",
    "ProblemKind",
    "Queue",
    "QueueTurn",
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
    "ValueFormat",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEvent",
]
