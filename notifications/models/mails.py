"""Mails to be sent about alerts."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from notifications.models.alerts import AlertFiring
from notifications.models.budgets import BudgetAlert
from tenants.models import Tenant


class NoticeKind(models.TextChoices):
    BUDGET = "budget", _("A budget passed a mark")
    FIRING = "firing", _("An alert fires")
    RESOLVED = "resolved", _("An alert is resolved")


class MailNotice(models.Model):
    """Notice of an alert to be sent by mail; one mail may contain several notices about firings.

    It is written in the transaction of its cause, so that it is not lost if a process dies. It is finished when
    `finished_at` is set. `accepted_for` has the ids of the people whose mail the server accepted, `sent_to` their
    number, and `sent_at` is the time of the first such mail.
    """

    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="mail_notices", null=True, verbose_name=_("tenant")
    )
    kind = models.CharField(_("kind"), max_length=10, choices=NoticeKind.choices)
    budget_alert = models.ForeignKey(BudgetAlert, on_delete=models.CASCADE, null=True, related_name="notices")
    firing = models.ForeignKey(AlertFiring, on_delete=models.CASCADE, null=True, related_name="notices")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    next_at = models.DateTimeField(_("next try"), default=timezone.now)
    attempts = models.PositiveSmallIntegerField(_("tries"), default=0)
    finished_at = models.DateTimeField(_("finished"), null=True)
    sent_to = models.PositiveSmallIntegerField(_("mails sent"), default=0)
    accepted_for = models.JSONField(default=list, db_default=[], editable=False)
    sent_at = models.DateTimeField(_("first sent"), null=True, editable=False)

    class Meta:
        db_table = "billing_mailnotice"
        ordering = ("id",)
        verbose_name = _("mail to be sent")
        verbose_name_plural = _("mails to be sent")
        indexes = (
            models.Index(fields=("next_at",), condition=Q(finished_at=None), name="mail_notice_due"),
            models.Index(fields=("tenant", "finished_at"), name="mail_notice_by_tenant"),
            models.Index(fields=("tenant", "sent_at"), name="mail_notice_by_sending"),
        )
        constraints = (
            models.UniqueConstraint(fields=("firing", "kind"), name="mail_notice_once_per_firing"),
            models.UniqueConstraint(fields=("budget_alert",), name="mail_notice_once_per_budget_alert"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"
