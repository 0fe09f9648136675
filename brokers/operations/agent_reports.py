"""Stores the reports of joined agents: states of broker processes, and checks of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from brokers import services
from brokers.models import Broker, Host
from brokers.operations.agent_access import AgentRefused

# Fields of a report on a broker that are columns of its row.
COLUMNS = (
    "process_state", "process_pid", "process_since", "process_restart_generation", "process_has_tls", "process_error",
)  # fmt: skip


@transaction.atomic
def apply_report(
    *,
    host: Host,
    brokers: Sequence[Mapping[str, Any]],
    checks: Sequence[Mapping[str, Any]] | None,
    machine: Mapping[str, Any] | None,
    agent_version: str,
    report_id: str,
) -> None:
    """Stores a report, unless it has the id of the last stored report: then its answer was lost, and it was resent.

    Raises `AgentRefused`, and stores nothing, if it is about a broker of another host.
    """
    own_broker_ids = set(Broker.objects.filter(host=host).values_list("pk", flat=True))
    if not own_broker_ids.issuperset(reported["id"] for reported in brokers):
        raise AgentRefused(
            "The report is about a broker of another host.", code="other_host", host=host, http_status=403
        )
    if report_id and not _store_report_id(host, report_id):
        return
    for reported in brokers:
        fields = {name: reported[name] for name in COLUMNS if name in reported}
        if fields:
            services.store_process_state(reported["id"], **fields)
        if reported.get("ends"):
            Broker.objects.filter(pk=reported["id"]).update(process_restarts=F("process_restarts") + reported["ends"])
    if checks is not None:
        services.store_checks(host.pk, checks, agent_version, machine)
    elif agent_version != host.agent_version:
        Host.objects.filter(pk=host.pk).update(agent_version=agent_version)


def _store_report_id(host: Host, report_id: str) -> bool:
    """Stores the id of a report; False if it is stored already. A concurrent call for the host waits for this one."""
    return bool(Host.objects.filter(pk=host.pk).exclude(agent_report_id=report_id).update(agent_report_id=report_id))
