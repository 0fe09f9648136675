"""Enumerations for the fields of the fleet's models, with their labels."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from brokers.contract import upstream


class ClusterKind(models.TextChoices):
    SHARED = "shared", _("Shared")
    DEDICATED = "dedicated", _("Dedicated")


class ClusterBackend(models.TextChoices):
    """Place of the records of a cluster's instances."""

    PENSTOCK = "penstock", _("Penstock's brokers")
    KAFKA = "kafka", _("An existing Kafka")


class SecurityProtocol(models.TextChoices):
    """Security of connections to an upstream Kafka, with Kafka's names."""

    PLAINTEXT = upstream.PLAINTEXT, upstream.PLAINTEXT
    SSL = upstream.SSL, upstream.SSL
    SASL_PLAINTEXT = upstream.SASL_PLAINTEXT, upstream.SASL_PLAINTEXT
    SASL_SSL = upstream.SASL_SSL, upstream.SASL_SSL


class SaslMechanism(models.TextChoices):
    PLAIN = upstream.PLAIN, upstream.PLAIN
    SCRAM_SHA_256 = "SCRAM-SHA-256", "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512", "SCRAM-SHA-512"


class ClusterState(models.TextChoices):
    """Life cycle of a cluster. Instances are placed on ready clusters."""

    FORMING = "forming", _("Being formed")
    READY = "ready", _("Ready")
    RETIRING = "retiring", _("Being retired")
    RETIRED = "retired", _("Retired")


class HostCheck(models.TextChoices):
    """Checks that an agent makes of its machine, in the order in which they are shown."""

    VERSION = "version", _("Version")
    CLOCK = "clock", _("Clock")
    ADDRESS = "address", _("Address")
    PORTS = "ports", _("Ports")
    DIRECTORIES = "directories", _("Directories")


class HostCheckState(models.TextChoices):
    PASSED = "passed", _("Passed")
    WARNING = "warning", _("Warning")
    FAILED = "failed", _("Failed")


class FleetOperationType(models.TextChoices):
    FORM = "cluster.form", _("Form a cluster")
    RETIRE = "cluster.retire", _("Retire a cluster")


class FleetStep(models.TextChoices):
    """Steps of fleet operations in order."""

    ACCEPTED = "accepted", _("Request accepted")
    BROKERS_ADDED = "brokers_added", _("Brokers added")
    BROKERS_ANSWER = "brokers_answer", _("Brokers answer")
    CONTROLLER_ELECTED = "controller_elected", _("Controller elected")
    USAGE_READ = "usage_read", _("Usage and audit read to the end")
    BROKERS_STOPPED = "brokers_stopped", _("Brokers stopped")
    BROKERS_REMOVED = "brokers_removed", _("Brokers removed")
    DOCUMENTS_REMOVED = "documents_removed", _("Documents removed from ZooKeeper")


FLEET_STEPS_OF: dict[FleetOperationType, tuple[FleetStep, ...]] = {
    FleetOperationType.FORM: (
        FleetStep.ACCEPTED,
        FleetStep.BROKERS_ADDED,
        FleetStep.BROKERS_ANSWER,
        FleetStep.CONTROLLER_ELECTED,
    ),
    FleetOperationType.RETIRE: (
        FleetStep.ACCEPTED,
        FleetStep.USAGE_READ,
        FleetStep.BROKERS_STOPPED,
        FleetStep.BROKERS_REMOVED,
        FleetStep.DOCUMENTS_REMOVED,
    ),
}


class WantedState(models.TextChoices):
    """Wanted state of a broker process, which the agent of its host establishes."""

    RUNNING = "running", _("Running")
    STOPPED = "stopped", _("Stopped")


class ProcessState(models.TextChoices):
    """State of the process as observed by the agent."""

    UNKNOWN = "unknown", _("Unknown")
    STARTING = "starting", _("Starting")
    RUNNING = "running", _("Running")
    STOPPING = "stopping", _("Stopping")
    STOPPED = "stopped", _("Stopped")
    BACKING_OFF = "backing_off", _("Waiting to restart")


class Health(models.TextChoices):
    """Health of a broker for operators, from the agent's and the broker's own reports."""

    HEALTHY = "healthy", _("Healthy")
    DISK_OFFLINE = "disk_offline", _("A disk is offline")
    UPSTREAM_LOST = "upstream_lost", _("The upstream does not answer")
    STARTING = "starting", _("Starting")
    LATE = "late", _("Does not answer")
    DOWN = "down", _("Down")
    STOPPED = "stopped", _("Stopped on purpose")


class RebalanceKind(models.TextChoices):
    DRAIN = "drain", _("Empty a broker")
    BALANCE = "balance", _("Level all brokers")
    LOSS = "loss", _("Remove a lost broker")


class RebalanceState(models.TextChoices):
    """State of a rebalance. A plan is reviewed first; a running one can be paused, undone or abandoned."""

    PLANNED = "planned", _("Planned")
    RUNNING = "running", _("Running")
    PAUSED = "paused", _("Paused")
    UNDOING = "undoing", _("Being undone")
    ABANDONING = "abandoning", _("Being abandoned")
    DONE = "done", _("Done")
    UNDONE = "undone", _("Undone")
    ABANDONED = "abandoned", _("Abandoned")
    DISCARDED = "discarded", _("Discarded")


class RebalanceStep(models.TextChoices):
    """Steps of a rebalance in order."""

    HOMES = "homes", _("Ports for instances on other brokers")
    MOVES = "moves", _("Moving partitions")
    LEAVING = "leaving", _("Giving ports back")
    STOPPING = "stopping", _("Stopping the broker")
    RELEASING = "releasing", _("Forgetting the broker")


class ReassignmentState(models.TextChoices):
    WAITING = "waiting", _("Waiting")
    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    UNDONE = "undone", _("Undone")
    SKIPPED = "skipped", _("Topic is gone")
    LEFT = "left", _("Left as it is")


class DataLoss(models.TextChoices):
    """Data loss of a partition with a lost broker, if no other broker has all of it."""

    NOTHING = "", _("Nothing")
    SOME = "some", _("What its other replicas had not copied")
    ALL = "all", _("Everything: its only copy was there")


class RestartState(models.TextChoices):
    RUNNING = "running", _("Running")
    PAUSED = "paused", _("Paused")
    DONE = "done", _("Done")
    CANCELLED = "cancelled", _("Cancelled")
