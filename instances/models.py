"""Instances as tenants buy them, and the operations on them. Topics and configs have no rows: brokers keep them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from instances.choices import (
    PHASE_CHOICES,
    ClusterType,
    OperationState,
    OperationType,
    QuotaScope,
    Reason,
    RouteSecurity,
    StepState,
    StorageWhenFull,
)
from instances.copying.models import TopicCopy as TopicCopy
from instances.lifecycle.phases import Phase, document_state, resolved_phase
from instances.limits import (
    ADDRESS_CHARS_MAX,
    ALLOW_LIST_ENTRIES_MAX,
    BYTES_PER_GB,
    BYTES_PER_MB,
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MAX_LOWER_BOUND,
    NAME_CHARS_MAX,
    REPLICATION_FACTOR_MAX,
    RETENTION_MINUTES_MIN_DEFAULT,
)
from instances.oauth.key_sets import PublicKey
from instances.oauth.limits import (
    AUDIENCE_CHARS_MAX,
    DEFAULT_CLOCK_SKEW_S,
    DEFAULT_PRINCIPAL_CLAIM,
    FETCH_ERROR_CHARS_MAX,
    ISSUER_CHARS_MAX,
    KEY_SET_URL_CHARS_MAX,
    PRINCIPAL_CLAIM_CHARS_MAX,
)
from instances.routes.kinds import DEFAULT_MAPPING_RULES, MAPPING_RULES_CHARS_MAX, PROTOCOLS, ROUTE_NAME_CHARS_MAX
from instances.soft_deletion.models import DeletedTopic as DeletedTopic
from instances.soft_deletion.models import DeletedUser as DeletedUser
from instances.topic_models import TopicMask, TopicSchema  # noqa: F401 - Django finds an app's models here
from quotas.policies import DEFAULT_POLICY
from tenants.ids import TypedIdField
from tenants.limits import SUSPENSION_NOTE_CHARS_MAX
from tenants.message_field import MessageField
from tenants.models import Tenant
from tenants.versioned import Versioned

TOPIC_CHARS_MAX = 249
NAME_CONSTRAINT = "instance_name_once"
HOST_CHARS_MAX = 253
# Replication factor that stands for a replica on each broker of the instance, `REPLICATION_FACTOR_MAX` at most.
REPLICA_ON_EACH_BROKER = -1
assert ADDRESS_CHARS_MAX * ALLOW_LIST_ENTRIES_MAX < 64 * 1024  # a topic's lists fit into a ZooKeeper node


def default_settings() -> dict[str, Any]:
    """Returns the settings of a new instance: automatic topics, access without rules, sharing of limits, full storage.

    A new instance is closed: users may do only what access rules allow.
    """
    return {
        "auto_create_topics": True,
        "default_partitions": 3,
        "default_replication_factor": REPLICA_ON_EACH_BROKER,
        "allow_everyone_if_no_acl": False,
        "bandwidth_policy": DEFAULT_POLICY,
        "quota_scope": QuotaScope.CLUSTER.value,
        "storage_when_full": StorageWhenFull.STOP.value,
        "storage_retention_minutes_min": RETENTION_MINUTES_MIN_DEFAULT,
        "storage_grow_step_gb": None,
        "storage_grow_max_gb": None,
    }


def stored_settings(requested: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as a row stores them: a default replication factor of None becomes -1, as brokers know it."""
    factor = requested.get("default_replication_factor", ...)
    return {**requested, "default_replication_factor": REPLICA_ON_EACH_BROKER} if factor is None else dict(requested)


class Instance(Versioned):
    """An instance that a tenant bought: a bandwidth, a storage capacity and a Kafka address of its own.

    `generation` counts the changes that brokers apply, `observed_generation` is the last one that all of them
    confirmed; they are equal while nothing is pending. `endpoints` has the advertised `host:port` of the first route by
    broker id, written by the reconciler.
    """

    id = TypedIdField("ins")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="instances", verbose_name=_("tenant"))
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX)
    plan = models.CharField(_("plan"), max_length=32)
    bandwidth_mb_s = models.PositiveIntegerField(_("bandwidth, MB/s"))
    storage_gb = models.PositiveIntegerField(_("storage, GB"))
    partitions_max = models.PositiveIntegerField(_("partitions"))
    cluster_type = models.CharField(
        _("kind of cluster"), max_length=12, choices=ClusterType.choices, default=ClusterType.SHARED
    )
    settings = models.JSONField(_("settings"), default=default_settings)
    protected = models.BooleanField(_("protected from deletion"), default=False)

    phase = models.CharField(_("phase"), max_length=12, choices=PHASE_CHOICES, default=Phase.REQUESTED.value)
    phase_since = models.DateTimeField(_("since"), default=timezone.now)
    reason = models.CharField(_("reason"), max_length=24, choices=Reason.choices, blank=True, default="")
    conditions = models.JSONField(_("conditions"), default=list)
    suspended_for = models.CharField(
        _("suspended because"), max_length=24, choices=Reason.choices, blank=True, default=""
    )
    suspension_note = models.CharField(
        _("note for the tenant"), max_length=SUSPENSION_NOTE_CHARS_MAX, blank=True, default=""
    )
    deleted_at = models.DateTimeField(_("deleted"), null=True, blank=True)
    restorable_until = models.DateTimeField(_("restorable until"), null=True, blank=True)

    generation = models.PositiveIntegerField(_("wanted generation"), default=1, editable=False)
    observed_generation = models.PositiveIntegerField(_("confirmed generation"), default=0, editable=False)
    endpoints = models.JSONField(_("addresses"), default=dict)
    first_running_at = models.DateTimeField(_("first running"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("instance")
        verbose_name_plural = _("instances")
        indexes = (
            models.Index(fields=("phase", "updated_at"), name="instance_by_phase"),
            models.Index(fields=("tenant", "-created_at"), name="instance_by_tenant"),
            models.Index(fields=("-created_at", "id"), name="instance_by_time"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("tenant", "name"), condition=~models.Q(phase=Phase.DELETED.value), name=NAME_CONSTRAINT
            ),
            models.CheckConstraint(condition=models.Q(phase__in=[p.value for p in Phase]), name="instance_phase_known"),
            models.CheckConstraint(
                condition=models.Q(bandwidth_mb_s__gt=0, storage_gb__gt=0), name="instance_size_positive"
            ),
            models.CheckConstraint(
                condition=models.Q(observed_generation__lte=models.F("generation")), name="instance_generation_order"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def current_phase(self) -> Phase:
        return Phase(self.phase)

    @property
    def is_deleted(self) -> bool:
        return self.deleted_at is not None

    @property
    def is_suspended(self) -> bool:
        return bool(self.suspended_for)

    @property
    def wanted_state(self) -> str:
        """State that is published to brokers: active, frozen or deleting."""
        return document_state(is_deleted=self.is_deleted, is_suspended=self.is_suspended)

    @property
    def resolved_phase(self) -> Phase:
        """Phase of the instance once brokers have confirmed everything."""
        return resolved_phase(is_deleted=self.is_deleted, is_suspended=self.is_suspended)

    @property
    def bandwidth_bytes_per_s(self) -> int:
        """The limit in each direction."""
        return self.bandwidth_mb_s * BYTES_PER_MB

    @property
    def storage_bytes(self) -> int:
        return self.storage_gb * BYTES_PER_GB

    @property
    def message_bytes_max(self) -> int:
        """The most that a topic may set as `max.message.bytes`."""
        return min(max(self.bandwidth_bytes_per_s, MESSAGE_BYTES_MAX_LOWER_BOUND), MESSAGE_BYTES_MAX)

    @property
    def default_replication_factor(self) -> int | None:
        """Replication factor in force: the tenant's choice, else a replica on each broker; None without brokers."""
        factor = self.settings.get("default_replication_factor", REPLICA_ON_EACH_BROKER)
        if factor != REPLICA_ON_EACH_BROKER:
            return int(factor)
        return min(len(self.endpoints), REPLICATION_FACTOR_MAX) or None

    @property
    def settings_in_force(self) -> dict[str, Any]:
        """The row's settings, and the defaults of settings that it does not have yet."""
        settings = {**default_settings(), **self.settings}
        return {**settings, "default_replication_factor": self.default_replication_factor}

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap address of the first route; empty until addresses are reserved."""
        return addresses_in_order(self.endpoints)

    @property
    def routes_in_order(self) -> list[Route]:
        """Routes in the order of their creation; without a query where they are prefetched."""
        return sorted(self.routes.all(), key=lambda route: route.pk)


def addresses_in_order(endpoints: Mapping[str, str]) -> str:
    """Returns `host:port,host:port` in the order of broker ids."""
    return ",".join(address for _broker, address in sorted(endpoints.items(), key=lambda item: int(item[0])))


class Route(models.Model):
    """A listener of an instance: a port on each of its brokers, with its security, allow-list and connection limit.

    The first route has the lowest key. `endpoints` is the advertised `host:port` by broker id, written by the
    reconciler; `advertised_host` replaces the brokers' own host, for a load balancer in front of them.
    """

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="routes", verbose_name=_("instance"))
    name = models.CharField(_("name"), max_length=ROUTE_NAME_CHARS_MAX)
    security = models.CharField(_("security"), max_length=16, choices=RouteSecurity.choices)
    allow_list = models.JSONField(_("may connect"), default=list)
    advertised_host = models.CharField(_("advertised host"), max_length=HOST_CHARS_MAX, blank=True, default="")
    connections_max = models.PositiveIntegerField(_("connections, at most"), null=True, blank=True)
    proxies = models.JSONField(_("proxies"), default=list)
    principal_mapping_rules = models.TextField(
        _("names of users by certificate"),
        max_length=MAPPING_RULES_CHARS_MAX,
        default=DEFAULT_MAPPING_RULES,
        db_default=DEFAULT_MAPPING_RULES,  # processes of an older version write rows without it
    )
    # Public summaries of its certificates (`RouteCertificates`), null where there is none.
    certificate = models.JSONField(_("certificate"), null=True, editable=False)
    client_ca = models.JSONField(_("authority of clients"), null=True, editable=False)
    revocation = models.JSONField(_("revoked certificates"), null=True, editable=False)
    endpoints = models.JSONField(_("addresses"), default=dict, editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        ordering = ("instance", "pk")
        verbose_name = _("route")
        verbose_name_plural = _("routes")
        constraints = (
            models.UniqueConstraint(fields=("instance", "name"), name="route_name_once"),
            models.CheckConstraint(condition=models.Q(security__in=RouteSecurity.values), name="route_security_known"),
        )

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.name}"

    @property
    def security_protocol(self) -> str:
        """Value of a client's `security.protocol`."""
        return PROTOCOLS[self.security]

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap address of the route; empty until addresses are reserved."""
        return addresses_in_order(self.endpoints)

    @property
    def etag(self) -> tuple[object, ...]:
        """Value that changes when the owner changes the route, but not when it gets another port."""
        lists = tuple(self.allow_list), tuple(self.proxies)
        certificates = self.certificate, self.client_ca, self.revocation
        rules = self.principal_mapping_rules
        return self.pk, self.security, self.advertised_host, self.connections_max, *lists, rules, *certificates


class RouteCertificates(models.Model):
    """Certificates of a route that brokers need; public summaries of them are columns of the route.

    `private_key_pem` is encrypted. `revoked` is a set of hashes of revoked certificates
    (`instances.routes.certificate_entries.Revoked`), `crl_numbers` has the number of each authority's revocation list,
    `crl_parts` its summary; an earlier version writes the numbers alone. Both include lists of removed authorities.
    `warned` has the last warning about an expiry by kind, in days before the expiry, so that none is repeated.
    """

    route = models.OneToOneField(
        Route, on_delete=models.CASCADE, primary_key=True, related_name="certificates", verbose_name=_("route")
    )
    client_ca_pem = models.TextField(blank=True, default="")
    revoked = models.BinaryField(default=bytes)
    crl_numbers = models.JSONField(default=dict)
    crl_parts = models.JSONField(default=dict, db_default={})
    certificate_pem = models.TextField(blank=True, default="")
    private_key_pem = models.TextField(blank=True, default="")
    warned = models.JSONField(default=dict)

    class Meta:
        verbose_name = _("certificates of a route")
        verbose_name_plural = _("certificates of routes")

    def __str__(self) -> str:
        return str(self.route)


class OAuthConfiguration(models.Model):
    """Issuer, audience and keys of the tokens that clients of an instance may sign in with. `keys` are those of the key
    set in force, pinned or last fetched from `jwks_url` (`instances.oauth.key_sets.PublicKey.to_body`).

    `revision` counts changes, `published_revision` is the last one that was published to brokers. The row of a removed
    configuration stays until its removal is published.
    """

    instance = models.OneToOneField(
        Instance, on_delete=models.CASCADE, related_name="oauth", verbose_name=_("instance")
    )
    issuer = models.CharField(_("issuer"), max_length=ISSUER_CHARS_MAX)
    audience = models.CharField(_("audience"), max_length=AUDIENCE_CHARS_MAX)
    jwks_url = models.CharField(_("address of the key set"), max_length=KEY_SET_URL_CHARS_MAX, blank=True, default="")
    principal_claim = models.CharField(
        _("claim that names the user"), max_length=PRINCIPAL_CLAIM_CHARS_MAX, default=DEFAULT_PRINCIPAL_CLAIM
    )
    clock_skew_s = models.PositiveIntegerField(_("clock skew, s"), default=DEFAULT_CLOCK_SKEW_S)
    is_removed = models.BooleanField(_("removed"), default=False)
    keys = models.JSONField(_("keys"), default=list, editable=False)
    fetched_at = models.DateTimeField(_("keys fetched"), null=True, blank=True, editable=False)
    tried_at = models.DateTimeField(_("last fetch of keys"), null=True, blank=True, editable=False)
    fetch_error = MessageField(
        _("error of the last fetch"), max_length=FETCH_ERROR_CHARS_MAX, blank=True, default="", editable=False
    )
    revision = models.PositiveIntegerField(_("wanted revision"), default=1, editable=False)
    published_revision = models.PositiveIntegerField(_("published revision"), default=0, editable=False)

    class Meta:
        ordering = ("instance",)
        verbose_name = _("OAuth configuration")
        verbose_name_plural = _("OAuth configurations")

    def __str__(self) -> str:
        return f"{self.instance_id}/oauth"

    @property
    def public_keys(self) -> tuple[PublicKey, ...]:
        return tuple(map(PublicKey.from_body, self.keys))

    @property
    def etag(self) -> tuple[object, ...]:
        """Value that changes when the owner changes the configuration, but not when other keys are fetched."""
        pinned = () if self.jwks_url else self.public_keys
        return self.pk, self.issuer, self.audience, self.jwks_url, self.principal_claim, self.clock_skew_s, pinned


class Operation(models.Model):
    """A slow change of an instance whose progress can be followed. As a row, it survives the process that works on it.

    Billing reads sizes from here: `plan`, `bandwidth_mb_s`, `storage_gb` and `is_suspended` describe the instance after
    the operation has succeeded. `generation` is the instance's generation at the request: brokers have confirmed it
    when the operation is done. `steps` is a list of `{name, state, at_ms, fact, data}`; `at_ms` counts from
    `created_at`.
    """

    id = TypedIdField("op")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="operations", verbose_name=_("tenant"))
    instance = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="operations", verbose_name=_("instance")
    )
    type = models.CharField(_("type"), max_length=32, choices=OperationType.choices)
    state = models.CharField(_("state"), max_length=12, choices=OperationState.choices, default=OperationState.PENDING)
    steps = models.JSONField(_("steps"), default=list)
    error = models.JSONField(_("error"), null=True, blank=True)
    generation = models.PositiveIntegerField(_("generation"), editable=False)
    plan = models.CharField(_("plan"), max_length=32, editable=False)
    bandwidth_mb_s = models.PositiveIntegerField(_("bandwidth, MB/s"), editable=False)
    storage_gb = models.PositiveIntegerField(_("storage, GB"), editable=False)
    is_suspended = models.BooleanField(_("suspended"), editable=False)
    asked_by = models.CharField(_("asked by"), max_length=254)
    request_id = models.CharField(_("request id"), max_length=64, blank=True, default="")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("operation")
        verbose_name_plural = _("operations")
        indexes = (
            models.Index(fields=("tenant", "-created_at"), name="operation_by_tenant"),
            models.Index(fields=("-created_at", "id"), name="operation_by_time"),
            models.Index(fields=("instance", "state"), name="operation_by_instance"),
        )
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=OperationState.values), name="operation_state_known"),
            models.CheckConstraint(
                condition=models.Q(state__in=(OperationState.PENDING, OperationState.RUNNING), finished_at=None)
                | models.Q(state__in=(OperationState.SUCCEEDED, OperationState.FAILED), finished_at__isnull=False),
                name="operation_finished_with_time",
            ),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.instance_id} {self.state}"

    @property
    def resource_id(self) -> str:
        return self.instance_id

    @property
    def is_open(self) -> bool:
        return self.state in (OperationState.PENDING, OperationState.RUNNING)

    @property
    def progress(self) -> float:
        """Share of the steps that are done, 0 to 1."""
        done = sum(step["state"] == StepState.DONE for step in self.steps)
        return round(done / len(self.steps), 3) if self.steps else 0.0


class TopicAllowList(models.Model):
    """Addresses that may produce to, consume from and administer a topic (CKA-11). An empty list allows every address
    that may connect; an empty list for administration allows those that may both produce and consume.
    """

    instance = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="allow_lists", verbose_name=_("instance")
    )
    topic = models.CharField(_("topic"), max_length=TOPIC_CHARS_MAX)
    produce_ips = models.JSONField(_("may produce"), default=list)
    consume_ips = models.JSONField(_("may consume"), default=list)
    administer_ips = models.JSONField(_("may administer"), default=list)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        ordering = ("instance", "topic")
        verbose_name = _("topic allow-list")
        verbose_name_plural = _("topic allow-lists")
        constraints = (models.UniqueConstraint(fields=("instance", "topic"), name="allow_list_once_per_topic"),)

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.topic}"


class DelayedMinute(models.Model):
    """A UTC minute in which clients of an instance were delayed, with the longest delay of any broker."""

    instance = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="delayed_minutes", verbose_name=_("instance")
    )
    minute = models.DateTimeField(_("minute"))
    delay_ms_max = models.PositiveIntegerField(_("longest delay, ms"))

    class Meta:
        ordering = ("instance", "minute")
        verbose_name = _("delayed minute")
        verbose_name_plural = _("delayed minutes")
        indexes = (models.Index(fields=("minute",), name="delayed_minute_by_time"),)
        constraints = (models.UniqueConstraint(fields=("instance", "minute"), name="delayed_minute_once"),)

    def __str__(self) -> str:
        return f"{self.instance_id} {self.minute:%Y-%m-%d %H:%M} {self.delay_ms_max} ms"


class ThrottledMinute(models.Model):
    """Causes that throttled clients of an instance on one broker in a UTC minute, with counts, delays and clients.

    A broker that restarts within the minute has a row for each of its processes.
    """

    instance = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="throttled_minutes", verbose_name=_("instance")
    )
    minute = models.DateTimeField(_("minute"))
    broker_number = models.PositiveIntegerField(_("broker"))
    incarnation_ms = models.BigIntegerField(_("start of the broker's process"))
    count = models.PositiveBigIntegerField(_("requests"))
    causes = models.JSONField(_("causes"))

    class Meta:
        ordering = ("instance", "minute")
        verbose_name = _("throttled minute")
        verbose_name_plural = _("throttled minutes")
        indexes = (models.Index(fields=("minute",), name="throttled_minute_by_time"),)
        constraints = (
            models.UniqueConstraint(
                fields=("instance", "minute", "broker_number", "incarnation_ms"), name="throttled_minute_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.instance_id} {self.minute:%Y-%m-%d %H:%M} broker {self.broker_number} {self.count}"
