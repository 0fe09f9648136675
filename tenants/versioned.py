"""Rows with optimistic concurrency control: a version that counts changes and becomes the ETag."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import models
from django.utils.translation import gettext_lazy as _


class Versioned(models.Model):
    """Abstract base: creation time, last change, and `version`, incremented by `save_changes` under the row's lock."""

    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)
    version = models.PositiveIntegerField(_("version"), default=1, editable=False)

    class Meta:
        abstract = True

    def save_changes(self, fields: Iterable[str]) -> None:
        """Writes `fields` and increments the version; the row must be locked (`access` functions with `lock=True`)."""
        self.version += 1
        self.save(update_fields=[*fields, "version", "updated_at"])
