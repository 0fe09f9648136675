"""Models of the fleet: clusters, hosts, brokers, placements, port leases, rebalances and rolling restarts.

`process_*` fields are written by the agent of the host, `observed_*` by the beat task that queries the admin ports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from brokers.choices import (
    ClusterKind,
    ClusterState,
    DataLoss,
    ProcessState,
    ReassignmentState,
    RebalanceKind,
    RebalanceState,
    RebalanceStep,
    RestartState,
    WantedState,
)
from brokers.contract import paths
from brokers.fleet_operation import FleetOperation as FleetOperation
from brokers.joined_agent import AgentCertificate as AgentCertificate
from brokers.joined_agent import CertifiedBroker, ReportedHost
from brokers.kafka_backend import BackedCluster
from brokers.kafka_backend import KafkaBackend as KafkaBackend
from brokers.limits import BROKER_BANDWIDTH_MB_S, BROKER_STORAGE_GB, BROKERS_PER_INSTANCE_MIN, MOVES_PER_BROKER
from instances import naming
from instances.models import Instance, Route
from tenants.ids import TypedIdField
from tenants.message_field import MessageField
from tenants.versioned import Versioned


def _tenant_topic(topic: str) -> dict[str, str | None]:
    owner, name = naming.split_internal(topic)
    return {"instance_id": owner, "topic": name}


# States of a rebalance that is in progress.
UNDER_WAY = (RebalanceState.RUNNING, RebalanceState.PAUSED, RebalanceState.UNDOING, RebalanceState.ABANDONING)
_PORT = (MinValueValidator(1), MaxValueValidator(65_535))
_SOLD = _("What all its instances together may have bought; empty = what its brokers may sell.")


class ClusterQuerySet(models.QuerySet["Cluster"]):
    def active(self) -> ClusterQuerySet:
        """Returns the clusters that are not retired."""
        return self.exclude(state=ClusterState.RETIRED)


class Cluster(BackedCluster, Versioned):
    """Brokers that share one tree in ZooKeeper (CKA-46). An instance lives in exactly one cluster.

    The control secret opens the internal listeners and admin ports of brokers without a certificate. It is in a file
    that only its owner can read; the row holds the path only.
    """

    id = TypedIdField("cl")
    name = models.SlugField(_("name"), max_length=40)
    kind = models.CharField(_("kind"), max_length=12, choices=ClusterKind.choices, default=ClusterKind.SHARED)
    zookeeper = models.CharField(
        _("ZooKeeper"), max_length=500, blank=True, help_text=_("host:port[,host:port]; empty means the setting.")
    )
    control_secret_file = models.CharField(max_length=500, editable=False)
    brokers_per_instance_min = models.PositiveSmallIntegerField(
        _("brokers per instance, at least"), default=BROKERS_PER_INSTANCE_MIN
    )
    accepts_instances = models.BooleanField(_("takes further instances"), default=True)
    state = models.CharField(
        _("state"), max_length=8, choices=ClusterState.choices, default=ClusterState.READY, editable=False
    )
    zones = models.JSONField(
        _("zones"), default=list, blank=True, help_text=_("Zones of hosts that its brokers may be on; empty = all.")
    )
    max_partitions = models.PositiveIntegerField(
        _("partitions, at most"), null=True, blank=True,
        help_text=_("What all its instances together may have; empty = no limit."),
    )  # fmt: skip
    max_bandwidth_mb_s = models.PositiveIntegerField(
        _("bandwidth sold, MB/s, at most"), null=True, blank=True, help_text=_SOLD
    )
    max_storage_gb = models.PositiveIntegerField(_("storage sold, GB, at most"), null=True, blank=True, help_text=_SOLD)
    reserved_for = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="+", null=True, blank=True, editable=False,
        verbose_name=_("made for"),
    )  # fmt: skip
    retired_at = models.DateTimeField(_("retired"), null=True, blank=True, editable=False)

    objects = ClusterQuerySet.as_manager()

    class Meta:
        ordering = ("name",)
        verbose_name = _("cluster")
        verbose_name_plural = _("clusters")
        constraints = (
            models.UniqueConstraint(
                fields=("name",), condition=~models.Q(state=ClusterState.RETIRED.value), name="cluster_name_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def chroot(self) -> str:
        return paths.chroot(self.pk)

    def read_control_secret(self) -> str:
        """Returns the secret, or "" if there is none. Must not appear in any response, page, log or exception."""
        try:
            return Path(self.control_secret_file).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""


class Host(ReportedHost, Versioned):
    """A machine with an agent. `port_*` is the pool of tenant ports on this host."""

    id = TypedIdField("hst")
    name = models.SlugField(_("name"), max_length=63)
    zone = models.SlugField(
        _("zone"),
        max_length=64,
        blank=True,
        default="",
        help_text=_("Rack of its brokers without one of their own."),
    )
    bind_host = models.CharField(_("listens on"), max_length=255, default="127.0.0.1")
    advertised_host = models.CharField(_("advertised address"), max_length=255, default="127.0.0.1")
    internal_host = models.CharField(_("internal address"), max_length=255, default="127.0.0.1")
    port_first = models.PositiveIntegerField(_("first tenant port"), validators=_PORT)
    port_last = models.PositiveIntegerField(_("last tenant port"), validators=_PORT)
    port_cursor = models.PositiveIntegerField(
        default=0, editable=False, help_text="Last port given out: the search goes on behind it, so ports rest a while."
    )
    capacity_mb_s = models.PositiveIntegerField(
        _("brokers may sell, MB/s"), null=True, blank=True, help_text=_("All of the host together; empty = no limit.")
    )
    capacity_gb = models.PositiveIntegerField(_("brokers may sell, GB"), null=True, blank=True)
    data_dirs = models.JSONField(
        _("data directories"), default=list, blank=True, help_text=_("Each of its brokers keeps its log below these.")
    )
    agent_seen_at = models.DateTimeField(_("agent seen"), null=True, blank=True, editable=False)
    agent_version = models.CharField(_("agent's version"), max_length=32, blank=True, default="", editable=False)
    # A list of `{name, state, data}` (`brokers.agent.host_checks`).
    checks = models.JSONField(_("checks"), default=list, editable=False)
    checked_at = models.DateTimeField(_("checked"), null=True, blank=True, editable=False)
    removed_at = models.DateTimeField(_("removed"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ("name",)
        verbose_name = _("host")
        verbose_name_plural = _("hosts")
        constraints = (
            models.UniqueConstraint(fields=("name",), condition=models.Q(removed_at=None), name="host_name_once"),
            models.CheckConstraint(condition=models.Q(port_first__lte=models.F("port_last")), name="host_port_range"),
        )

    def __str__(self) -> str:
        return self.name


class Broker(CertifiedBroker, Versioned):
    """One broker process: its configuration, its capacity, and its last observed state."""

    id = TypedIdField("brk")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="brokers", verbose_name=_("cluster"))
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="brokers", verbose_name=_("host"))
    number = models.PositiveIntegerField(_("broker id"), help_text=_("The id in the Kafka protocol."))
    rack = models.CharField(_("rack"), max_length=64, blank=True, default="")
    internal_port = models.PositiveIntegerField(_("internal port"), validators=_PORT)
    admin_port = models.PositiveIntegerField(_("admin port"), validators=_PORT)
    data_dirs = models.JSONField(_("data directories"))
    overrides = models.JSONField(_("broker settings"), default=dict, blank=True)
    bandwidth_mb_s = models.PositiveIntegerField(_("can sell, MB/s"), default=BROKER_BANDWIDTH_MB_S)
    storage_gb = models.PositiveIntegerField(_("can sell, GB"), default=BROKER_STORAGE_GB)
    accepts_instances = models.BooleanField(_("takes further instances"), default=True)
    wanted = models.CharField(_("wanted"), max_length=8, choices=WantedState.choices, default=WantedState.RUNNING)
    restart_generation = models.PositiveIntegerField(default=0, editable=False)
    given_up_at = models.DateTimeField(
        _("given up"), null=True, blank=True, editable=False, help_text="When its removal as lost was begun."
    )
    removed_at = models.DateTimeField(_("removed"), null=True, blank=True, editable=False)

    process_state = models.CharField(
        _("process"), max_length=12, choices=ProcessState.choices, default=ProcessState.UNKNOWN, editable=False
    )
    process_pid = models.PositiveIntegerField(_("process id"), null=True, blank=True, editable=False)
    process_since = models.DateTimeField(_("process since"), null=True, blank=True, editable=False)
    process_restart_generation = models.PositiveIntegerField(default=0, editable=False)
    process_restarts = models.PositiveIntegerField(_("restarts"), default=0, editable=False)
    process_error = models.TextField(_("last output of the process"), blank=True, default="", editable=False)
    observed_at = models.DateTimeField(_("answered"), null=True, blank=True, editable=False)
    observed = models.JSONField(_("status"), default=dict, editable=False)

    class Meta:
        ordering = ("cluster", "number")
        verbose_name = _("broker")
        verbose_name_plural = _("brokers")
        constraints = (
            models.UniqueConstraint(fields=("cluster", "number"), name="broker_number_once"),
            models.UniqueConstraint(
                fields=("host", "internal_port"), condition=models.Q(removed_at=None), name="broker_internal_port_once"
            ),
            models.UniqueConstraint(
                fields=("host", "admin_port"), condition=models.Q(removed_at=None), name="broker_admin_port_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.number} @ {self.host_id}"

    @property
    def effective_rack(self) -> str:
        """Returns the rack with which its process is started: its own, or the zone of its host."""
        return self.rack or self.host.zone

    @property
    def internal_address(self) -> tuple[str, int]:
        return self.host.internal_host, self.internal_port

    @property
    def admin_address(self) -> tuple[str, int]:
        return self.host.internal_host, self.admin_port


class Placement(models.Model):
    """The cluster of an instance, with the capacity that the instance uses there."""

    instance = models.OneToOneField(
        Instance, on_delete=models.PROTECT, related_name="placement", primary_key=True, verbose_name=_("instance")
    )
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="placements", verbose_name=_("cluster"))
    bandwidth_mb_s = models.PositiveIntegerField(_("sold bandwidth, MB/s"))
    storage_gb = models.PositiveIntegerField(_("sold storage, GB"))
    reasons = models.JSONField(
        _("reasons"), default=list, editable=False, help_text="What each cluster had for it when it was placed."
    )
    placed_at = models.DateTimeField(_("placed"), auto_now_add=True)

    class Meta:
        ordering = ("cluster", "instance")
        verbose_name = _("placement")
        verbose_name_plural = _("placements")

    def __str__(self) -> str:
        return f"{self.instance_id} on {self.cluster_id}"


class PortLease(models.Model):
    """The port of one of an instance's routes on one broker; the brokers of its leases are the brokers of the instance.

    `route` is None after the route is deleted: the port stays leased until all brokers have confirmed the deletion.
    """

    instance = models.ForeignKey(
        Instance, on_delete=models.PROTECT, related_name="port_leases", verbose_name=_("instance")
    )
    broker = models.ForeignKey(Broker, on_delete=models.PROTECT, related_name="port_leases", verbose_name=_("broker"))
    route = models.ForeignKey(
        Route, on_delete=models.SET_NULL, null=True, related_name="port_leases", verbose_name=_("route")
    )
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="+", verbose_name=_("host"))
    port = models.PositiveIntegerField(_("port"), validators=_PORT)
    is_leaving = models.BooleanField(_("leaving"), default=False, editable=False)
    leased_at = models.DateTimeField(_("leased"), auto_now_add=True)

    class Meta:
        ordering = ("instance", "broker")
        verbose_name = _("port lease")
        verbose_name_plural = _("port leases")
        constraints = (
            models.UniqueConstraint(fields=("route", "broker"), name="port_lease_once_per_route"),
            models.UniqueConstraint(fields=("host", "port"), name="port_leased_once"),
        )

    def __str__(self) -> str:
        return f"{self.instance_id} {self.host_id}:{self.port}"


class FormerPort(models.Model):
    """The port of a route on a broker that its instance has left, for clients that know the address, in case the
    instance returns.

    It is leased to other routes only when no other port is free.
    """

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="+")
    route = models.ForeignKey(Route, on_delete=models.CASCADE, related_name="+")
    broker = models.ForeignKey(Broker, on_delete=models.CASCADE, related_name="+")
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="+")
    port = models.PositiveIntegerField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("route", "broker"), name="former_port_once_per_route"),
            models.UniqueConstraint(fields=("host", "port"), name="former_port_once"),
        )

    def __str__(self) -> str:
        return f"{self.instance_id} {self.host_id}:{self.port}"


class Rebalance(Versioned):
    """A plan of moves and its progress: emptying one broker (and removing it), removing a lost one, or balancing all.

    The state of the cluster is read again in every step (`brokers.rebalancing.executor`), so the executing process may
    die at any time. `placements` lists `{"owner", "arriving", "leaving"}` by broker number; `shares` is the load of
    each broker before and after.
    """

    id = TypedIdField("rb")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="rebalances", verbose_name=_("cluster"))
    kind = models.CharField(_("kind"), max_length=8, choices=RebalanceKind.choices)
    broker = models.ForeignKey(
        Broker, on_delete=models.PROTECT, related_name="drains", null=True, blank=True, verbose_name=_("broker")
    )
    removes = models.BooleanField(_("then remove the broker"), default=False)
    state = models.CharField(_("state"), max_length=10, choices=RebalanceState.choices, default=RebalanceState.PLANNED)
    step = models.CharField(_("step"), max_length=10, choices=RebalanceStep.choices, default=RebalanceStep.HOMES)
    trouble = MessageField(_("waits for"), max_length=500, blank=True, default="")
    placements = models.JSONField(_("placement changes"), default=list, db_column="homes")
    shares = models.JSONField(_("before and after"), default=dict)
    moves_at_once = models.PositiveSmallIntegerField(_("moves at a time per broker"), default=MOVES_PER_BROKER)
    copy_mb_s = models.PositiveIntegerField(_("copy at most, MB/s"), null=True, blank=True)
    pace = models.JSONField(
        default=dict,
        editable=False,
        help_text="What `brokers.rebalancing.throttle` has set, and what was there before.",
    )
    planned_by = models.CharField(_("planned by"), max_length=254)
    started_at = models.DateTimeField(_("started"), null=True, blank=True, editable=False)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("rebalance")
        verbose_name_plural = _("rebalances")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster",),
                condition=models.Q(state__in=("running", "paused", "undoing", "abandoning")),
                name="one_rebalance_per_cluster",
            ),
        )

    def __str__(self) -> str:
        return self.pk

    @property
    def title(self) -> str:
        """Returns the localized title."""
        if self.broker is None:
            return str(self.get_kind_display())
        text = _("Remove broker %(number)s") if self.removes else _("Empty broker %(number)s")
        if self.kind == RebalanceKind.LOSS:
            text = _("Remove lost broker %(number)s")
        return text % {"number": self.broker.number}

    @property
    def lost_partitions(self) -> list[dict[str, Any]]:
        """Returns data lost with a broker: `{"instance_id", "topic", "partitions", "loses"}` by topic and loss."""
        if self.kind != RebalanceKind.LOSS:
            return []
        result: dict[tuple[str, str], list[int]] = {}
        rows = getattr(self, "lossy_moves", None)  # `selectors.prefetch_losses` reads those of many rebalances
        for move in self.moves.exclude(loses="").order_by("topic", "partition") if rows is None else rows:
            result.setdefault((move.topic, move.loses), []).append(move.partition)
        return [
            {**_tenant_topic(topic), "partitions": partitions, "loses": loses}
            for (topic, loses), partitions in sorted(result.items())
        ]

    @property
    def is_under_way(self) -> bool:
        return self.state in UNDER_WAY

    @property
    def is_going_back(self) -> bool:
        """True if its moves are being, or have been, undone."""
        return self.state in (RebalanceState.UNDOING, RebalanceState.UNDONE)


class PartitionReassignment(models.Model):
    """Reassignment of one partition from the replicas `before` to `target`; `topic` is the internal name."""

    rebalance = models.ForeignKey(
        Rebalance, on_delete=models.PROTECT, related_name="moves", verbose_name=_("rebalance")
    )
    position = models.PositiveIntegerField(_("position"))
    topic = models.CharField(_("topic"), max_length=300)
    partition = models.PositiveIntegerField(_("partition"))
    topic_id = models.CharField(
        max_length=36, blank=True, default="", editable=False, help_text="Of the topic that was planned for."
    )
    before = models.JSONField(_("from"))
    target = models.JSONField(_("to"))
    loses = models.CharField(_("loses"), max_length=4, choices=DataLoss.choices, blank=True, default=DataLoss.NOTHING)
    copies = models.PositiveSmallIntegerField(default=0, editable=False, help_text="Brokers that get a copy.")
    copies_back = models.PositiveSmallIntegerField(default=0, editable=False, help_text="The same on the way back.")
    size_bytes = models.BigIntegerField(_("size"), default=0)
    copied_bytes = models.BigIntegerField(_("copied"), default=0)
    state = models.CharField(
        _("state"), max_length=8, choices=ReassignmentState.choices, default=ReassignmentState.WAITING
    )
    note = MessageField(_("note"), max_length=300, blank=True, default="")
    began_at = models.DateTimeField(_("began"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        db_table = "brokers_replicamove"
        ordering = ("rebalance", "position", "id")
        verbose_name = _("move")
        verbose_name_plural = _("moves")
        indexes = (models.Index(fields=("rebalance", "state", "position"), name="move_by_state"),)
        constraints = (
            models.UniqueConstraint(fields=("rebalance", "topic", "partition"), name="move_once_per_partition"),
        )

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def copies_bytes(self) -> int:
        """Returns the bytes to copy: its size for every broker that gets a copy."""
        return self.size_bytes * (self.copies_back if self.rebalance.is_going_back else self.copies)


class RollingRestart(Versioned):
    """A restart of a cluster's brokers one after the other, each when the previous one is back and in sync
    (`brokers.operations.rolling_restart`).

    `numbers` are the brokers in their order, `done` is the number of restarted ones.
    """

    id = TypedIdField("rr")
    cluster = models.ForeignKey(
        Cluster, on_delete=models.PROTECT, related_name="rolling_restarts", verbose_name=_("cluster")
    )
    state = models.CharField(_("state"), max_length=10, choices=RestartState.choices, default=RestartState.RUNNING)
    numbers = models.JSONField(_("brokers"), default=list)
    done = models.PositiveSmallIntegerField(_("done"), default=0)
    is_begun = models.BooleanField(
        default=False, editable=False, help_text="The broker at `done` was asked to restart."
    )
    trouble = MessageField(_("waits for"), max_length=500, blank=True, default="")
    asked_by = models.CharField(_("asked by"), max_length=254)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("rolling restart")
        verbose_name_plural = _("rolling restarts")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster",),
                condition=models.Q(state__in=("running", "paused")),
                name="one_rolling_restart_per_cluster",
            ),
        )

    def __str__(self) -> str:
        return self.pk

    @property
    def is_under_way(self) -> bool:
        return self.state in (RestartState.RUNNING, RestartState.PAUSED)


class AuditOffset(models.Model):
    """The offset of one partition of a cluster's `__audit` up to which client actions are in the audit log.

    Written in the transaction of the rows. Events below `checked_below` may already have rows, and are compared with
    them: after the log was truncated below the offset, it is read from its beginning.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="audit_offsets")
    partition = models.IntegerField()
    next_offset = models.BigIntegerField(default=0)
    checked_below = models.BigIntegerField(default=0)

    class Meta:
        ordering = ("cluster", "partition")
        constraints = (models.UniqueConstraint(fields=("cluster", "partition"), name="audit_offset_once"),)

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.partition} @ {self.next_offset}"
