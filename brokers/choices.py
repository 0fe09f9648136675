"""The closed sets of words of this app, with their labels."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class ClusterKind(models.TextChoices):
    SHARED = "shared", _("Shared")
    DEDICATED = "dedicated", _("Dedicated")


class WantedState(models.TextChoices):
    """What the operator wants of a broker process; the agent of its host makes it so."""

    RUNNING = "running", _("Running")
    STOPPED = "stopped", _("Stopped")


class ProcessState(models.TextChoices):
    """What the agent sees of the process."""

    UNKNOWN = "unknown", _("Unknown")
    STARTING = "starting", _("Starting")
    RUNNING = "running", _("Running")
    STOPPING = "stopping", _("Stopping")
    STOPPED = "stopped", _("Stopped")
    BACKING_OFF = "backing_off", _("Waiting to restart")


class Health(models.TextChoices):
    """What an operator has to know about a broker, from both looks."""

    HEALTHY = "healthy", _("Healthy")
    DISK_OFFLINE = "disk_offline", _("A disk is offline")
    STARTING = "starting", _("Starting")
    LATE = "late", _("Does not answer")
    DOWN = "down", _("Down")
    STOPPED = "stopped", _("Stopped on purpose")
