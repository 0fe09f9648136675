"""Last turns of tenants in queues, each of which serves the backlogs of all tenants in turn."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from tenants.models import Tenant


class Queue(models.TextChoices):
    WEBHOOKS = "webhooks", _("Webhooks")
    ARCHIVES = "archives", _("Archives")
    MAILS = "mails", _("Mails")


class QueueTurn(models.Model):
    """Last turn of a tenant in a queue.

    It outlives the served rows, so that a tenant does not come first again by deleting and recreating its waiting rows.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", verbose_name=_("tenant"))
    queue = models.CharField(_("queue"), max_length=10, choices=Queue.choices)
    served_at = models.DateTimeField(_("served"))

    class Meta:
        db_table = "billing_queueturn"
        verbose_name = _("turn in a queue")
        verbose_name_plural = _("turns in queues")
        constraints = (models.UniqueConstraint(fields=("queue", "tenant"), name="queue_turn_once"),)

    def __str__(self) -> str:
        return f"{self.queue} {self.tenant_id}"
