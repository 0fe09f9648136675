"""Usage: minute rows, the counters they are derived from, and the read offset of each partition of `__usage`.

The pipeline adds usage to these tables, each batch in one transaction (`billing.pipeline.sink`). A database trigger
writes `UsageRevision`, `billing.retention.partitions` writes `UsagePoint`, and operators set `handled_at` of a
`UsageProblem`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from brokers.contract.usage import COUNTER_KEY

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
# Stands for the broker of a record that cannot be parsed.
NO_BROKER = -1


class Direction(models.TextChoices):
    PRODUCE = "produce", _("Produce")
    CONSUME = "consume", _("Consume")


class Gauge(models.TextChoices):
    """Gauges of an instance, in byte-hours, partition-seconds and the maximum of concurrent connections in the hour."""

    STORED = "stored", _("Stored")
    PARTITIONS = "partitions", _("Partitions")
    CONNECTIONS = "connections", _("Connections")


COUNTED_CHOICES = [*Direction.choices, *Gauge.choices]


class UsageMinute(models.Model):
    """Bytes and requests of one (instance, topic, user, client id, direction) in one UTC minute.

    Instances and topics are stored by name instead of a foreign key, because usage outlives them. The table has a
    partition for each week, which is dropped when it is old (`billing.retention`); there is no index by `id`.
    """

    instance_id = models.CharField(_("instance"), max_length=16)
    minute = models.DateTimeField(_("minute"))
    topic = models.CharField(_("topic"), max_length=249)
    user = models.CharField(_("user"), max_length=255)
    client_id = models.CharField(_("client id"), max_length=255)
    direction = models.CharField(_("direction"), max_length=12, choices=Direction.choices)
    bytes = models.BigIntegerField(_("bytes"))
    requests = models.BigIntegerField(_("requests"))

    class Meta:
        ordering = ("instance_id", "minute")
        verbose_name = _("usage by minute")
        verbose_name_plural = _("usage by minute")
        constraints = (
            models.UniqueConstraint(
                fields=("instance_id", "minute", "topic", "user", "client_id", "direction"), name="usage_minute_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.instance_id} {self.minute:%Y-%m-%d %H:%M} {self.direction} {self.bytes} B"


class UsageHour(models.Model):
    """Bytes and requests of an instance in one UTC hour and direction, and its gauges, as input of bills.

    Hours are written together with the minutes they sum up. Gauges have no minutes; the value of a gauge is in `bytes`,
    in the unit that `Gauge` names.
    """

    instance_id = models.CharField(_("instance"), max_length=16)
    hour = models.DateTimeField(_("hour"))
    direction = models.CharField(_("counted"), max_length=12, choices=COUNTED_CHOICES)
    bytes = models.BigIntegerField(_("bytes"))
    requests = models.BigIntegerField(_("requests"))

    class Meta:
        ordering = ("instance_id", "hour")
        verbose_name = _("usage by hour")
        verbose_name_plural = _("usage by hour")
        constraints = (models.UniqueConstraint(fields=("instance_id", "hour", "direction"), name="usage_hour_once"),)

    def __str__(self) -> str:
        return f"{self.instance_id} {self.hour:%Y-%m-%d %H}:00 {self.direction} {self.bytes}"


class UsageRevision(models.Model):
    """Number of times that hours of an instance in a past month (UTC) were written, and the last time.

    A database trigger on the hours counts, regardless of the writer (migration `0030_late_usage_is_dated`).
    """

    instance_id = models.CharField(max_length=16)
    month = models.DateTimeField()
    revision = models.BigIntegerField()
    noted_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("instance_id", "month")
        indexes = (models.Index(fields=("noted_at",), name="usage_revision_by_time"),)
        constraints = (models.UniqueConstraint(fields=("instance_id", "month"), name="usage_revision_once"),)

    def __str__(self) -> str:
        return f"{self.instance_id} {self.month:%Y-%m} {self.revision}"


class UsageDay(models.Model):
    """Bytes and requests of one (instance, topic, user, client id, direction) on one UTC day.

    Days are written together with the minutes they sum up, and are kept when the minutes are dropped.
    """

    instance_id = models.CharField(_("instance"), max_length=16)
    day = models.DateField(_("day"))
    topic = models.CharField(_("topic"), max_length=249)
    user = models.CharField(_("user"), max_length=255)
    client_id = models.CharField(_("client id"), max_length=255)
    direction = models.CharField(_("direction"), max_length=12, choices=Direction.choices)
    bytes = models.BigIntegerField(_("bytes"))
    requests = models.BigIntegerField(_("requests"))

    class Meta:
        ordering = ("instance_id", "day")
        verbose_name = _("usage by day")
        verbose_name_plural = _("usage by day")
        constraints = (
            models.UniqueConstraint(
                fields=("instance_id", "day", "topic", "user", "client_id", "direction"), name="usage_day_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.instance_id} {self.day} {self.direction} {self.bytes} B"


class UsagePoint(models.Model):
    """Bytes of an instance in five minutes, from minutes that were dropped.

    They are kept only for instances on a plan with a price by percentile, so that their bills can be recomputed.
    """

    instance_id = models.CharField(max_length=16)
    point = models.DateTimeField()
    direction = models.CharField(max_length=12, choices=Direction.choices)
    bytes = models.BigIntegerField()

    class Meta:
        ordering = ("instance_id", "point")
        constraints = (models.UniqueConstraint(fields=("instance_id", "point", "direction"), name="usage_point_once"),)

    def __str__(self) -> str:
        return f"{self.instance_id} {self.point:%Y-%m-%d %H:%M} {self.direction} {self.bytes} B"


class UsageCounter(models.Model):
    """Last cumulative counter that the pipeline applied, by broker incarnation and key; the next delta starts here."""

    cluster_id = models.CharField(max_length=16)
    broker_id = models.IntegerField()
    broker_epoch = models.BigIntegerField()
    instance_id = models.CharField(max_length=16)
    topic = models.CharField(max_length=249)
    user = models.CharField(max_length=255)
    client_id = models.CharField(max_length=255)
    direction = models.CharField(max_length=12, choices=COUNTED_CHOICES)
    sequence = models.BigIntegerField()
    bytes = models.BigIntegerField()
    requests = models.BigIntegerField()

    class Meta:
        ordering = ("cluster_id", "broker_id", "broker_epoch", "instance_id")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster_id", *COUNTER_KEY),
                name="usage_counter_once",
            ),
        )

    def __str__(self) -> str:
        return f"broker {self.broker_id} epoch {self.broker_epoch} {self.instance_id}/{self.topic} {self.direction}"


class UsageOffset(models.Model):
    """Offset of one `__usage` partition of a cluster up to which the tables of usage are complete.

    `updated_at` is when the partition was last read to its end, `NEVER` before the first time: it does not advance for
    a partition that cannot be read or has more records than one run reads.
    """

    cluster_id = models.CharField(max_length=16)
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    next_offset = models.BigIntegerField()
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("cluster_id", "topic", "partition")
        constraints = (models.UniqueConstraint(fields=("cluster_id", "topic", "partition"), name="usage_offset_once"),)

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.topic}-{self.partition} @ {self.next_offset}"


class UsageIncarnation(models.Model):
    """Latest report of one broker process that the pipeline applied: its highest sequence and its latest time.

    `is_refused` means that another process reported under the same epoch; reports of both are no longer counted.
    """

    cluster_id = models.CharField(max_length=16)
    broker_id = models.IntegerField()
    broker_epoch = models.BigIntegerField()
    sequence = models.BigIntegerField()
    at_ms = models.BigIntegerField()
    is_refused = models.BooleanField(default=False)

    class Meta:
        ordering = ("cluster_id", "broker_id", "broker_epoch")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster_id", "broker_id", "broker_epoch"), name="usage_incarnation_once"
            ),
        )  # fmt: skip

    def __str__(self) -> str:
        return f"broker {self.broker_id} epoch {self.broker_epoch}"


class ProblemKind(models.TextChoices):
    """Reasons why usage records were not counted, or not at the time that they state (`billing.pipeline.schema`)."""

    MALFORMED = "malformed", _("Not a usage record")
    NEWER_VERSION = "newer_version", _("Of a newer version")
    EPOCH_REUSED = "epoch_reused", _("Under an epoch that was used before")
    CLOCK = "clock", _("By a clock that is wrong")


class UsageProblem(models.Model):
    """Usage records of one partition and broker that an operator must look at.

    Records of the same kind are added up until the problem is handled.
    """

    cluster_id = models.CharField(_("cluster"), max_length=16)
    kind = models.CharField(_("problem"), max_length=20, choices=ProblemKind.choices)
    partition = models.IntegerField(_("partition"))
    broker_id = models.IntegerField(_("broker"), default=NO_BROKER)
    records = models.BigIntegerField(_("records"))
    last_offset = models.BigIntegerField(_("last offset"))
    detail = models.TextField(_("as written"), blank=True)
    first_at = models.DateTimeField(_("first seen"))
    last_at = models.DateTimeField(_("last seen"))
    handled_at = models.DateTimeField(_("handled"), null=True, blank=True)

    class Meta:
        ordering = ("-last_at", "-id")
        verbose_name = _("problem of usage")
        verbose_name_plural = _("problems of usage")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster_id", "kind", "partition", "broker_id"), condition=models.Q(handled_at=None),
                name="usage_problem_open_once",
            ),
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.kind}: {self.records}"
