"""Warnings that an unused instance is about to be stopped."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class IdleWarning(models.Model):
    """Warning about the idle period that began at `idle_since`. The row is created before the mail is sent."""

    instance_id = models.CharField(_("instance"), max_length=16, primary_key=True)
    idle_since = models.DateTimeField(_("idle since"))
    warned_at = models.DateTimeField(_("warned"))

    class Meta:
        verbose_name = _("warning of an idle stop")
        verbose_name_plural = _("warnings of idle stops")

    def __str__(self) -> str:
        return self.instance_id
