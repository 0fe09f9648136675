"""Texts and states of the steps of an operation, for the stepper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from instances.choices import ClusterType, Reason, Step, StepState
from instances.models import Operation
from tenants.message_field import entry
from tenants.wording import localized

MS_PER_S = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One step. `state` is done, now, broken or waiting; `took` is the time from the request to its
    end, or its progress.
    """

    label: str
    state: str
    took: str
    fact: str


def elapsed_s(operation: Operation) -> float:
    """Returns the seconds from the request to its end, or until now."""
    end = operation.finished_at or timezone.now()
    return max(0.0, (end - operation.created_at).total_seconds())


def steps_of(operation: Operation) -> list[StepRow]:
    """Returns all steps; while the operation is open, the first one that is not done is the current one."""
    rows: list[StepRow] = []
    has_current = not operation.is_open
    for step in operation.steps:
        state = {StepState.DONE: "done", StepState.FAILED: "broken"}.get(step["state"], "waiting")
        if state == "waiting" and not has_current:
            state, has_current = "now", True
        fact = (_capacity_error(operation) if state == "broken" else "") or _fact(step, state)
        rows.append(StepRow(label=_label(step), state=state, took=_time_or_progress(step, state), fact=fact))
    return rows


def _capacity_error(operation: Operation) -> str:
    """Returns why no capacity was found and what would help; empty for other errors.

    Operations of earlier versions name the bandwidth only.
    """
    error = operation.error or {}
    if error.get("code") != Reason.NO_ROOM:
        return ""
    data = error.get("data") or {}
    missing = tuple(data.get("missing") or ("bandwidth",))
    bandwidth_values = {
        "asked": f"{operation.instance.bandwidth_mb_s:,}",
        "most": f"{data.get('largest_bandwidth_mb_s') or 0:,}",
    }
    storage_values = {"asked": f"{operation.instance.storage_gb:,}", "most": f"{data.get('largest_storage_gb') or 0:,}"}
    if missing == ("bandwidth",):
        if data.get("largest_bandwidth_mb_s"):
            return _("No cluster has %(asked)s MB/s free. Take %(most)s MB/s or less.") % bandwidth_values
        return _("No cluster has %(asked)s MB/s free.") % bandwidth_values
    if missing == ("storage",):
        if data.get("largest_storage_gb"):
            return _("No cluster has %(asked)s GB free. Take %(most)s GB or less.") % storage_values
        return _("No cluster has %(asked)s GB free.") % storage_values
    if missing == ("ports",):
        return _("No port is left for it on the brokers' hosts.")
    if missing == ("broker",):
        return _("No broker takes a new instance.")
    if missing == ("cluster",):
        is_dedicated = operation.instance.cluster_type == ClusterType.DEDICATED
        return _("No dedicated cluster is free.") if is_dedicated else _("No cluster takes a new instance.")
    both = {"mb": bandwidth_values["asked"], "gb": storage_values["asked"]}
    if missing == ("both",):
        return _("No cluster has %(mb)s MB/s and %(gb)s GB free on the same brokers. Take less of one.") % both
    return _("No cluster has %(mb)s MB/s and %(gb)s GB free.") % both


def _label(step: dict[str, Any]) -> str:
    return str(Step(step["name"]).label) if step["name"] in Step.values else str(step["name"])


def _time_or_progress(step: dict[str, Any], state: str) -> str:
    data = step.get("data") or {}
    if state == "now" and "open" in data and "of" in data:
        return _("%(n)s of %(m)s") % {"n": data["open"], "m": data["of"]}
    return "" if step["at_ms"] is None or state == "waiting" else f"{step['at_ms']:,} ms"


def _fact(step: dict[str, Any], state: str) -> str:
    data = step.get("data") or {}
    if state == "broken":
        return localized(entry(step, "fact"))
    if step["name"] == Step.ACCEPTED:
        return _("Written with its audit row")
    if step["name"] == Step.PLACED and data.get("outcome") == "forming":
        return _("A cluster of its own is being formed.")
    if step["name"] == Step.PLACED and data.get("outcome") == "waits":
        return _(
            "No cluster has room for it at the moment. It starts by itself when there is some; nothing is charged."
        )
    if step["name"] == Step.PLACED and "cluster" in data:
        return _("Cluster %(cluster)s, %(n)s brokers") % {"cluster": data["cluster"], "n": data["brokers"]}
    if step["name"] == Step.LIMITS_PUBLISHED and "bandwidth_mb_s" in data:
        values = {"n": f"{data['bandwidth_mb_s']:,}", "gb": f"{data['storage_gb']:,}"}
        return _("Produce %(n)s, consume %(n)s MB/s, storage %(gb)s GB") % values
    if not step["fact"] and step["name"] == Step.FIRST_MESSAGE:
        return _("A probe produces and reads one record as a real client")
    return str(step["fact"])
