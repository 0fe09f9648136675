"""Events for certificates of a route that expire soon and for overdue revocation lists, each recorded once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from instances.models import Instance, Route, RouteCertificates
from instances.services.route_certificates import CERTIFICATE, CLIENT_CA, REVOCATION
from tenants import audit
from tenants.actors import system_actor
from tenants.containment import contained

# Days before the expiry; 0: it has expired.
WARNING_DAYS: Final = (0, 7, 30)
ROWS_PER_CHUNK: Final = 500
ACTIONS: Final = {
    CERTIFICATE: "route.certificate_ends",
    CLIENT_CA: "route.client_ca_ends",
    REVOCATION: "route.revocation_list_overdue",
}


def warnings_due(route: Route, now: datetime) -> dict[str, int]:
    """Returns the warnings that apply to a route's certificates: days before the expiry, by kind.

    Revocation lists are replaced often, so that only an overdue one is reported.
    """
    result = {}
    for kind in (CERTIFICATE, CLIENT_CA, REVOCATION):
        end = _expires_at(route, kind)
        if end is None:
            continue
        days = WARNING_DAYS[:1] if kind == REVOCATION else WARNING_DAYS
        days_due = next((days_before for days_before in days if end - now <= timedelta(days=days_before)), None)
        if days_due is not None:
            result[kind] = days_due
    return result


def record_certificate_expiry(now: datetime) -> int:
    """Records the events that are due. Returns the number of routes with a new event."""
    rows = RouteCertificates.objects.filter(route__instance__deleted_at=None).select_related("route")
    columns = ("warned", *(f"route__{kind}" for kind in (CERTIFICATE, CLIENT_CA, REVOCATION)))
    route_ids = []
    for row in rows.only(*columns).iterator(chunk_size=ROWS_PER_CHUNK):
        with contained("certificates.route_failed", route_id=row.pk):
            if _new_warnings(row, now):
                route_ids.append(row.pk)
    recorded = 0
    for route_id in route_ids:
        with contained("certificates.route_failed", route_id=route_id):
            recorded += _record_warnings(route_id, now)
    return recorded


@transaction.atomic
def _record_warnings(route_id: int, now: datetime) -> bool:
    """Records the events of one route; True if there was a new one."""
    row = RouteCertificates.objects.select_for_update(of=("self",)).filter(pk=route_id).first()
    if row is None:
        return False
    instance: Instance = row.route.instance
    new_warnings = _new_warnings(row, now)
    for kind, days in new_warnings.items():
        end = _expires_at(row.route, kind)
        after = {"route": row.route.name, "ends": end, "days_before": days}
        audit.record(system_actor("watcher", instance.tenant), ACTIONS[kind], instance, None, after)
    row.warned = {**row.warned, **new_warnings}
    row.save(update_fields=("warned",))
    return bool(new_warnings)


def _new_warnings(row: RouteCertificates, now: datetime) -> dict[str, int]:
    return {kind: days for kind, days in warnings_due(row.route, now).items() if row.warned.get(kind) != days}


def _expires_at(route: Route, kind: str) -> datetime | None:
    summary = getattr(route, kind)
    end = summary and summary["next_update" if kind == REVOCATION else "not_after"]
    return datetime.fromisoformat(end) if end else None
