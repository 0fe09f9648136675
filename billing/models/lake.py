"""Files of the lake. A file without a row is not part of the lake; an unfinished run left it behind."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class LakeFile(models.Model):
    """Parquet file of one cluster and UTC day, written before the transaction that contains its row.

    `rows` and `added_bytes`, the sum of the increments in it, verify its content.
    """

    path = models.CharField(_("path"), max_length=255, unique=True)
    cluster_id = models.CharField(_("cluster"), max_length=16)
    day = models.DateField(_("day"))
    rows = models.BigIntegerField(_("rows"))
    added_bytes = models.BigIntegerField(_("bytes added"))
    schema_version = models.PositiveSmallIntegerField(_("version of the schema"))
    created_at = models.DateTimeField(_("written"), auto_now_add=True)

    class Meta:
        ordering = ("day", "cluster_id", "id")
        verbose_name = _("file of the lake")
        verbose_name_plural = _("files of the lake")
        indexes = (models.Index(fields=("day", "cluster_id"), name="lake_file_by_day"),)

    def __str__(self) -> str:
        return self.path
