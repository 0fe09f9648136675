"""Archives of topics: source and destination, progress of each partition, and the files of the archive.

Names of tables begin with `billing_`, under which existing installations have them.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from instances.models import Instance
from instances.naming import TOPIC_NAME_LENGTH_MAX
from tenants.ids import TypedIdField
from tenants.message_field import MessageField
from tenants.models import Tenant, Versioned

ARCHIVE_URL_CHARS_MAX = 500
NAME_CHARS_MAX = 200
SECRET_CHARS_MAX = 400
ENCRYPTED_CHARS_MAX = 1_000
ERROR_CHARS_MAX = 500
TOPIC_ID_CHARS_MAX = 40
INTERVAL_MINUTES = 60


class ArchiveState(models.TextChoices):
    ACTIVE = "active", _("Active")
    PAUSED = "paused", _("Paused")
    ENDED = "ended", _("Ended with its instance")
    DELETING = "deleting", _("Being deleted")


class ValueFormat(models.TextChoices):
    """Columns made from a record's value, in addition to its bytes."""

    RAW = "raw", _("Bytes alone")
    JSON = "json", _("Columns of JSON")
    AVRO = "avro", _("Columns of Avro")
    FRAMED_AVRO = "framed_avro", _("Columns of Avro behind a schema registry's five bytes")


class OnTrouble(models.TextChoices):
    """Policy for records that cannot be archived."""

    FAIL = "fail", _("Stop and say so")
    SKIP = "skip", _("Skip and count them")


class Archive(Versioned):
    """Archive of a topic. `url` is `file:` or `s3:`, with files in a folder below it named by the archive's id, or
    `postgresql:` with rows in a table.

    Passwords and keys are stored encrypted, not hashed, because runs need them.
    """

    id = TypedIdField("arc")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="archives", verbose_name=_("tenant"))
    instance = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="archives", verbose_name=_("instance")
    )
    topic = models.CharField(_("topic"), max_length=TOPIC_NAME_LENGTH_MAX)
    url = models.CharField(_("address"), max_length=ARCHIVE_URL_CHARS_MAX)
    state = models.CharField(_("state"), max_length=10, choices=ArchiveState.choices, default=ArchiveState.ACTIVE)
    value_format = models.CharField(_("values as"), max_length=20, choices=ValueFormat.choices, default=ValueFormat.RAW)
    value_schema = models.JSONField(_("columns"), null=True, blank=True, default=None)
    interval_minutes = models.PositiveIntegerField(_("interval, minutes"), default=INTERVAL_MINUTES)
    run_after_bytes = models.PositiveBigIntegerField(_("or after, bytes"), null=True, blank=True)
    bytes_per_s_max = models.PositiveBigIntegerField(_("rate limit, bytes/s"), null=True, blank=True)
    on_gap = models.CharField(
        _("records deleted before they were read"), max_length=4, choices=OnTrouble.choices, default=OnTrouble.FAIL
    )
    on_bad_record = models.CharField(
        _("unreadable records"), max_length=4, choices=OnTrouble.choices, default=OnTrouble.SKIP
    )
    username = models.CharField(_("reads as user"), max_length=NAME_CHARS_MAX, blank=True, default="")
    password = models.CharField(max_length=ENCRYPTED_CHARS_MAX, blank=True, default="", editable=False)
    access_key_id = models.CharField(_("access key"), max_length=NAME_CHARS_MAX, blank=True, default="")
    secret_access_key = models.CharField(max_length=ENCRYPTED_CHARS_MAX, blank=True, default="", editable=False)
    database_user = models.CharField(
        _("user of the database"), max_length=NAME_CHARS_MAX, blank=True, default="", db_default=""
    )
    database_password = models.CharField(
        max_length=ENCRYPTED_CHARS_MAX, blank=True, default="", db_default="", editable=False
    )
    # Runs of an archive without it stop while the topic has masks. It is that of the creator, or of a later run.
    may_unmask = models.BooleanField(_("may read masked fields"), default=False, db_default=False, editable=False)
    error = MessageField(_("error"), max_length=ERROR_CHARS_MAX, blank=True, default="", editable=False)
    # Id of the topic when it was last checked, and how often it was deleted and recreated.
    topic_id = models.CharField(max_length=TOPIC_ID_CHARS_MAX, blank=True, default="", db_default="", editable=False)
    topic_generation = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    last_run_at = models.DateTimeField(_("last run"), null=True, blank=True, editable=False)
    next_run_at = models.DateTimeField(_("next run"), default=timezone.now, editable=False)

    class Meta:
        db_table = "billing_archive"
        ordering = ("created_at", "id")
        verbose_name = _("archive")
        verbose_name_plural = _("archives")
        constraints = (
            models.UniqueConstraint(
                fields=("instance", "topic", "url"), condition=~models.Q(state="deleting"), name="archive_once"
            ),
        )
        indexes = (
            models.Index(
                fields=("next_run_at",), condition=models.Q(state__in=("active", "deleting")), name="archive_is_due"
            ),
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.topic}"

    @property
    def is_on_our_disks(self) -> bool:
        return self.url.startswith("file:")

    @property
    def is_in_database(self) -> bool:
        return self.url.startswith("postgresql:")


class ArchivePartition(models.Model):
    """Progress of one partition: offsets below `next_offset` are in files of the archive, skipped, or missing.

    `planned_end` is set during a run; a killed run leaves it set, together with files that no row names. For an archive
    in a database, the row is a copy of the progress stored there.
    """

    archive = models.ForeignKey(Archive, on_delete=models.CASCADE, related_name="partitions")
    partition = models.PositiveIntegerField(_("partition"))
    next_offset = models.BigIntegerField(_("next offset"))
    end_offset = models.BigIntegerField(_("end of the log"))
    planned_end = models.BigIntegerField(null=True, editable=False)
    skipped_records = models.BigIntegerField(_("records skipped"), default=0)
    missed_offsets = models.BigIntegerField(_("offsets missed"), default=0)
    unfit_values = models.BigIntegerField(_("values without columns"), default=0)
    loaded_rows = models.BigIntegerField(_("rows loaded"), default=0, db_default=0)
    # The topic was recreated: `next_offset` refers to the old topic, `end_offset` to the new one.
    is_of_deleted = models.BooleanField(default=False, db_default=False, editable=False)
    read_at = models.DateTimeField(null=True, editable=False)
    error = models.CharField(_("error"), max_length=ERROR_CHARS_MAX, blank=True, default="")
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        db_table = "billing_archivepartition"
        ordering = ("archive", "partition")
        verbose_name = _("partition of an archive")
        verbose_name_plural = _("partitions of archives")
        constraints = (models.UniqueConstraint(fields=("archive", "partition"), name="archive_partition_once"),)

    def __str__(self) -> str:
        return f"{self.archive_id}-{self.partition}"

    @property
    def lag(self) -> int:
        """Offsets between the archived ones and the end of the log as it was last seen."""
        return self.end_offset if self.is_of_deleted else max(0, self.end_offset - self.next_offset)


class ArchiveFile(models.Model):
    """File that belongs to the archive. `content_sum` is the sum of the hashes of its rows, for verification."""

    archive = models.ForeignKey(Archive, on_delete=models.CASCADE, related_name="files")
    path = models.CharField(_("path"), max_length=400)
    partition = models.PositiveIntegerField(_("partition"))
    first_offset = models.BigIntegerField(_("first offset"))
    last_offset = models.BigIntegerField(_("last offset"))
    rows = models.BigIntegerField(_("rows"))
    bytes = models.BigIntegerField(_("bytes"))
    content_sum = models.BigIntegerField(_("sum of the content"))
    created_at = models.DateTimeField(_("written"), auto_now_add=True)

    class Meta:
        db_table = "billing_archivefile"
        ordering = ("archive", "id")
        verbose_name = _("file of an archive")
        verbose_name_plural = _("files of archives")
        constraints = (models.UniqueConstraint(fields=("archive", "path"), name="archive_file_once"),)

    def __str__(self) -> str:
        return self.path
