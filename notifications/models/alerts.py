"""Alert rules of tenants and operators, and their firings."""

from __future__ import annotations

from datetime import timedelta

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from brokers.models import Cluster
from instances.models import Instance
from instances.naming import TOPIC_NAME_LENGTH_MAX
from notifications.limits import (
    FIRES_EVERY,
    FOR_MINUTES,
    FOR_MINUTES_MAX,
    GAP_MAX,
    GROUP_CHARS_MAX,
    NAME_CHARS_MAX,
    RESOLVE_AFTER_MAX,
    RESOLVE_BELOW_TENTHS,
    WINDOW_MINUTES_MAX,
    WINDOW_MINUTES_MIN,
)
from tenants.alert_state import NO_LEVEL, AlertLevel, AlertState, AlertStatus, AlertTerms
from tenants.ids import ID_LONG_RANDOM_CHARS, TypedIdField
from tenants.models import Tenant, Versioned


class AlertKind(models.TextChoices):
    """Figures that rules evaluate. The last two belong to clusters and are available to operators only."""

    STORAGE_USED = "storage_used", _("Storage used")
    THROTTLED_SHARE = "throttled_share", _("Time in which clients are delayed")
    CONSUMER_LAG = "consumer_lag", _("Lag of a consumer group")
    BROKERS_SILENT = "brokers_silent", _("Silent brokers")
    CLUSTER_UNDER_REPLICATED = "cluster_under_replicated", _("Under-replicated partitions of a cluster")
    CLUSTER_BROKERS_SILENT = "cluster_brokers_silent", _("Silent brokers of a cluster")


OF_CLUSTERS = (AlertKind.CLUSTER_UNDER_REPLICATED, AlertKind.CLUSTER_BROKERS_SILENT)
OF_TENANTS = tuple(kind for kind in AlertKind if kind not in OF_CLUSTERS)
STATES = (
    (AlertState.OK.value, _("Fine")),
    (AlertState.PENDING.value, _("About to fire")),
    (AlertState.FIRING.value, _("Firing")),
    (AlertState.RESOLVED.value, _("Resolved")),
)


# The only level of a rule.
RULE_LEVEL = 1
TENTHS = 10


def rule_terms(threshold: int, lasts: timedelta) -> AlertTerms:
    """Returns the terms of a rule that fires when its figure stays at or above a threshold for a duration."""
    # Rounded up: figures are whole numbers.
    ends_below = -(-threshold * RESOLVE_BELOW_TENTHS // TENTHS)
    return AlertTerms(
        levels=(AlertLevel(number=RULE_LEVEL, fires_at=threshold, ends_below=ends_below),),
        fires_after=lasts,
        resolves_after=min(lasts, RESOLVE_AFTER_MAX),
        fires_every=FIRES_EVERY,
        gap_max=GAP_MAX,
    )


class FiringEnd(models.TextChoices):
    """Reason for the end of a firing."""

    RESOLVED = "resolved", _("The figure went down")
    CHANGED = "changed", _("The rule was changed")
    PAUSED = "paused", _("The rule was paused")
    DELETED = "deleted", _("The rule was deleted")


class AlertRule(Versioned):
    """Alert rule about an instance of a tenant, or about a cluster without a tenant.

    `threshold` is in percent, records, brokers or partitions, depending on the kind; `window_minutes` belongs to the
    throttled share, `group_id` and `topic` to lags. The fields from `state` on are written by the evaluation
    (`tenants.alert_state.AlertStatus`), which does not increment `version`.
    """

    id = TypedIdField("rul")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="alert_rules", null=True, editable=False,
        verbose_name=_("tenant"),
    )  # fmt: skip
    instance = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="alert_rules", null=True, editable=False,
        verbose_name=_("instance"),
    )  # fmt: skip
    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, related_name="alert_rules", null=True, verbose_name=_("cluster")
    )
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX)
    kind = models.CharField(_("kind"), max_length=32, choices=AlertKind.choices)
    threshold = models.PositiveBigIntegerField(_("threshold"), validators=(MinValueValidator(1),))
    for_minutes = models.PositiveIntegerField(
        _("duration, minutes"), default=FOR_MINUTES,
        validators=(MinValueValidator(1), MaxValueValidator(FOR_MINUTES_MAX)),
    )  # fmt: skip
    window_minutes = models.PositiveSmallIntegerField(
        _("window, minutes"), null=True, blank=True, editable=False,
        validators=(MinValueValidator(WINDOW_MINUTES_MIN), MaxValueValidator(WINDOW_MINUTES_MAX)),
    )  # fmt: skip
    group_id = models.CharField(_("group"), max_length=GROUP_CHARS_MAX, blank=True, default="", editable=False)
    topic = models.CharField(_("topic"), max_length=TOPIC_NAME_LENGTH_MAX, blank=True, default="", editable=False)
    is_enabled = models.BooleanField(_("enabled"), default=True)

    state = models.CharField(_("state"), max_length=10, choices=STATES, default=AlertState.OK.value, editable=False)
    state_since = models.DateTimeField(_("since"), null=True, editable=False)
    held_ms = models.PositiveBigIntegerField(default=0, editable=False)
    value = models.BigIntegerField(_("figure"), null=True, editable=False)
    is_unknown = models.BooleanField(_("unknown"), default=True, editable=False)
    evaluated_at = models.DateTimeField(_("evaluated"), null=True, editable=False)
    fired_at = models.DateTimeField(_("fired"), null=True, editable=False)

    class Meta:
        db_table = "billing_alertrule"
        ordering = ("created_at", "id")
        verbose_name = _("alert rule")
        verbose_name_plural = _("alert rules")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "name"), name="alert_rule_name_once"),
            models.CheckConstraint(condition=Q(threshold__gt=0), name="alert_rule_threshold_positive"),
            models.CheckConstraint(
                condition=Q(tenant__isnull=False, instance__isnull=False, cluster=None, kind__in=OF_TENANTS)
                | Q(tenant=None, instance=None, cluster__isnull=False, kind__in=OF_CLUSTERS),
                name="alert_rule_of_one",
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def terms(self) -> AlertTerms:
        return rule_terms(self.threshold, timedelta(minutes=self.for_minutes))

    @property
    def status(self) -> AlertStatus:
        state = AlertState(self.state)
        return AlertStatus(
            state=state,
            since=self.state_since,
            level=RULE_LEVEL if state is AlertState.FIRING else NO_LEVEL,
            observed_for=timedelta(milliseconds=self.held_ms),
            value=self.value,
            is_unknown=self.is_unknown,
            evaluated_at=self.evaluated_at,
            fired_at=self.fired_at,
        )


class AlertFiring(models.Model):
    """Firing of a rule with the settings of that time; it is open without `resolved_at`. It outlives its rule."""

    id = TypedIdField("fir", ID_LONG_RANDOM_CHARS)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="alert_firings", null=True, verbose_name=_("tenant")
    )
    rule_id = models.CharField(_("rule"), max_length=16)
    rule_name = models.CharField(_("name"), max_length=NAME_CHARS_MAX)
    kind = models.CharField(_("kind"), max_length=32, choices=AlertKind.choices)
    instance_id = models.CharField(_("instance"), max_length=16, blank=True, default="")
    cluster_id = models.CharField(_("cluster"), max_length=16, blank=True, default="")
    of_name = models.CharField(_("of"), max_length=64, blank=True, default="")
    group_id = models.CharField(_("group"), max_length=GROUP_CHARS_MAX, blank=True, default="")
    topic = models.CharField(_("topic"), max_length=TOPIC_NAME_LENGTH_MAX, blank=True, default="")
    threshold = models.PositiveBigIntegerField(_("threshold"))
    for_minutes = models.PositiveIntegerField(_("duration, minutes"))
    window_minutes = models.PositiveSmallIntegerField(_("window, minutes"), null=True)
    value = models.BigIntegerField(_("figure"))
    pending_at = models.DateTimeField(_("reached"))
    fired_at = models.DateTimeField(_("fired"))
    resolved_at = models.DateTimeField(_("resolved"), null=True)
    resolved_value = models.BigIntegerField(_("figure at the end"), null=True)
    ended_by = models.CharField(_("ended by"), max_length=10, choices=FiringEnd.choices, blank=True, default="")

    class Meta:
        db_table = "billing_alertfiring"
        ordering = ("-fired_at", "id")
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        indexes = (
            models.Index(fields=("tenant", "-fired_at"), name="alert_firing_by_tenant"),
            models.Index(fields=("rule_id", "-fired_at"), name="alert_firing_by_rule"),
            models.Index(fields=("resolved_at",), name="alert_firing_by_end"),
        )
        constraints = (
            models.UniqueConstraint(fields=("rule_id",), condition=Q(resolved_at=None), name="alert_firing_open_once"),
        )

    def __str__(self) -> str:
        return f"{self.rule_name} {self.fired_at:%Y-%m-%d %H:%M}"
