"""Model of a long-running operation on a cluster; part of `brokers.models`."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from brokers.choices import FleetOperationType
from instances.choices import OperationState, StepState
from tenants.ids import TypedIdField


class FleetOperation(models.Model):
    """A long-running operation of an operator on a cluster. `steps` is a list of `{name, state, at_ms, fact, data}`;
    `at_ms` counts from `created_at`.
    """

    id = TypedIdField("fop")
    cluster = models.ForeignKey(
        "brokers.Cluster", on_delete=models.PROTECT, related_name="operations", verbose_name=_("cluster")
    )
    type = models.CharField(_("type"), max_length=16, choices=FleetOperationType.choices)
    state = models.CharField(_("state"), max_length=12, choices=OperationState.choices, default=OperationState.PENDING)
    steps = models.JSONField(_("steps"), default=list)
    error = models.JSONField(_("error"), null=True, blank=True)
    asked_by = models.CharField(_("asked by"), max_length=254)
    request_id = models.CharField(_("request id"), max_length=64, blank=True, default="")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("fleet operation")
        verbose_name_plural = _("fleet operations")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster",),
                condition=models.Q(state__in=("pending", "running")),
                name="one_fleet_operation_per_cluster",
            ),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.cluster_id} {self.state}"

    @property
    def is_open(self) -> bool:
        return self.state in (OperationState.PENDING, OperationState.RUNNING)

    @property
    def progress(self) -> float:
        """Returns the share of completed steps, 0 to 1."""
        completed = sum(step["state"] == StepState.DONE for step in self.steps)
        return round(completed / len(self.steps), 3) if self.steps else 0.0
