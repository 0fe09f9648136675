"""What is sold (plans and their dated prices) and what was used (minute rows, counters, offsets of the pipeline).

The three usage tables are written by the pipeline alone, in one transaction (`billing.pipeline.sink`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.rating import PlanPrice
from brokers.contract.usage import COUNTER_KEY

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
CURRENCY_PATTERN = r"^[A-Z]{3}$"


class Plan(models.Model):
    """A size on sale: what is included, and how far an instance may grow inside it."""

    code = models.SlugField(_("code"), max_length=32, primary_key=True)
    name = models.CharField(_("name"), max_length=64)
    bandwidth_mb_s = models.PositiveIntegerField(_("included bandwidth, MB/s"))
    storage_gb = models.PositiveIntegerField(_("included storage, GB"))
    bandwidth_mb_s_max = models.PositiveIntegerField(_("largest bandwidth, MB/s"))
    storage_gb_max = models.PositiveIntegerField(_("largest storage, GB"))
    partitions_max = models.PositiveIntegerField(_("partitions"))
    position = models.PositiveSmallIntegerField(_("position"), default=0, help_text=_("Smallest first."))
    on_sale = models.BooleanField(_("on sale"), default=True)

    class Meta:
        ordering = ("position", "code")
        verbose_name = _("plan")
        verbose_name_plural = _("plans")
        constraints = (
            models.CheckConstraint(
                condition=models.Q(bandwidth_mb_s__gt=0, bandwidth_mb_s_max__gte=models.F("bandwidth_mb_s")),
                name="plan_bandwidth_range",
            ),
            models.CheckConstraint(
                condition=models.Q(storage_gb__gt=0, storage_gb_max__gte=models.F("storage_gb")),
                name="plan_storage_range",
            ),
        )

    def __str__(self) -> str:
        return self.name


class Price(models.Model):
    """What a plan costs from an instant on. A price that has begun is history and is never edited, only followed."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="prices", verbose_name=_("plan"))
    effective_from = models.DateTimeField(_("effective from"))
    currency = models.CharField(_("currency"), max_length=3, default="EUR")
    base_per_hour = models.DecimalField(_("base per hour"), max_digits=12, decimal_places=4)
    per_mb_s_hour = models.DecimalField(_("per extra MB/s and hour"), max_digits=12, decimal_places=4)
    per_gb_hour = models.DecimalField(_("per extra GB and hour"), max_digits=12, decimal_places=6)

    class Meta:
        ordering = ("plan", "-effective_from")
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        constraints = (
            models.UniqueConstraint(fields=("plan", "currency", "effective_from"), name="price_once_per_instant"),
        )

    def __str__(self) -> str:
        return f"{self.plan_id} {self.base_per_hour} {self.currency}/h"

    def clean(self) -> None:
        """Who adds one: it begins later, so that hours that have passed keep what they cost. The first price of a plan
        in a currency may have begun; nobody paid before it.
        """
        super().clean()
        self.currency = (self.currency or "").strip().upper()
        if not re.match(CURRENCY_PATTERN, self.currency):
            raise ValidationError({"currency": _("A currency is three letters, such as EUR.")})
        now = timezone.now()
        begun = Price.objects.filter(plan_id=self.plan_id, currency=self.currency, effective_from__lte=now)
        if self.effective_from and self.effective_from <= now and begun.exclude(pk=self.pk).exists():
            raise ValidationError(
                {"effective_from": _("Hours that have passed are charged at the price they had. Enter a later time.")}
            )

    def as_plan_price(self) -> PlanPrice:
        return PlanPrice(
            currency=self.currency,
            base_per_hour=self.base_per_hour,
            included_mb_s=self.plan.bandwidth_mb_s,
            per_mb_s_hour=self.per_mb_s_hour,
            included_gb=self.plan.storage_gb,
            per_gb_hour=self.per_gb_hour,
        )


class Direction(models.TextChoices):
    PRODUCE = "produce", _("Produce")
    CONSUME = "consume", _("Consume")


class UsageMinute(models.Model):
    """Bytes and requests of one (instance, topic, user, client id, direction) in one UTC minute.

    Instances and topics are kept by name, not by foreign key: usage outlives what caused it.
    """

    instance_id = models.CharField(_("instance"), max_length=16)
    minute = models.DateTimeField(_("minute"))
    topic = models.CharField(_("topic"), max_length=249)
    user = models.CharField(_("user"), max_length=255)
    client_id = models.CharField(_("client id"), max_length=255)
    direction = models.CharField(_("direction"), max_length=8, choices=Direction.choices)
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


class UsageCounter(models.Model):
    """The last cumulative counter the pipeline applied, per broker incarnation and key; the next delta starts here."""

    cluster_id = models.CharField(max_length=16)
    broker_id = models.IntegerField()
    broker_epoch = models.BigIntegerField()
    instance_id = models.CharField(max_length=16)
    topic = models.CharField(max_length=249)
    user = models.CharField(max_length=255)
    client_id = models.CharField(max_length=255)
    direction = models.CharField(max_length=8, choices=Direction.choices)
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
    """Up to which offset of one `__usage` partition of a cluster the rows above are complete.

    `updated_at` is when the partition was last seen to hold nothing further, `NEVER` before the first time: a partition
    that cannot be read, or has more than one run takes, stands still.
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
