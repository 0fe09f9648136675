"""Certificates of the brokers of one host, for clients and for other processes of the installation.

They are created before a broker starts and renewed while it runs, together with those of the control plane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import structlog
from django.conf import settings
from django.db import Error as DatabaseError

from brokers.contract import process_identity
from brokers.contract.process_identity import CONTROL_PROCESSES
from brokers.infra.certificates import ensure_certificate, ensure_process_certificate
from brokers.models import Broker
from instances.models import Route

log = structlog.get_logger(__name__)

# Maximum delay until the certificate names a new advertised host of a route.
RENEWAL_CHECK_INTERVAL_S: Final = 20.0


def certificate_file_of(broker: Broker) -> Path:
    """Returns the file of a broker's certificate for clients."""
    return settings.TLS_DIR / f"{_certificate_name(broker)}.pem"


def internal_certificate_file_of(broker: Broker) -> Path:
    """Returns the file of a broker's certificate for connections with other processes of the installation."""
    return settings.INTERNAL_TLS_DIR / internal_identity(broker).file_name


def internal_identity(broker: Broker) -> process_identity.ProcessIdentity:
    """Returns the process identity in a broker's internal certificate."""
    return process_identity.broker(broker.cluster_id, broker.number)


def _ensure_internal_certificate(broker: Broker) -> Path | None:
    return ensure_process_certificate(settings.INTERNAL_TLS_DIR, internal_identity(broker), [broker.host.internal_host])


def _certificate_name(broker: Broker) -> str:
    return f"{broker.cluster_id}-{broker.number}"


class CertificateRenewal:
    """Renews certificates periodically, and immediately for a new broker."""

    def __init__(self) -> None:
        self._checked_at_s: float | None = None
        self._certified_ids: set[str] = set()

    def renew(self, brokers: Iterable[Broker], now_s: float) -> None:
        """Renews due certificates. Failures are logged and retried; brokers keep their certificates meanwhile."""
        brokers_by_id = {broker.pk: broker for broker in brokers}
        is_due = self._checked_at_s is None or now_s - self._checked_at_s >= RENEWAL_CHECK_INTERVAL_S
        if not is_due and self._certified_ids.issuperset(brokers_by_id):
            return
        self._checked_at_s, self._certified_ids = now_s, set(brokers_by_id)
        try:
            hosts = route_hosts(list(brokers_by_id.values()))
            for broker in brokers_by_id.values():
                if ensure_certificate(settings.TLS_DIR, _certificate_name(broker), hosts[broker.pk]) is None:
                    log.warning("agent.no_certificate", broker_id=broker.number, directory=settings.TLS_DIR.name)
                if _ensure_internal_certificate(broker) is None:
                    directory = settings.INTERNAL_TLS_DIR.name
                    log.warning("agent.no_certificate", broker_id=broker.number, directory=directory)
            renew_control_plane_certificates()
        except (OSError, ValueError, DatabaseError) as error:
            log.warning("agent.certificates_not_renewed", reason=f"{type(error).__name__}: {error}")


def renew_control_plane_certificates() -> None:
    """Renews certificates of the control plane's programs that are due. Raises `OSError` and `ValueError`."""
    for process in CONTROL_PROCESSES:
        ensure_process_certificate(settings.INTERNAL_TLS_DIR, process_identity.control(process))


def route_hosts(brokers: Collection[Broker]) -> dict[str, list[str]]:
    """Returns the host names under which clients reach each broker, by its id; the first is its host's."""
    names_by_broker: dict[str, set[str]] = {broker.pk: set() for broker in brokers}
    routes = Route.objects.filter(port_leases__broker__in=names_by_broker).exclude(advertised_host="").order_by()
    for broker_id, name in routes.values_list("port_leases__broker_id", "advertised_host").distinct():
        if broker_id in names_by_broker:
            names_by_broker[broker_id].add(name)
    return {broker.pk: [broker.host.advertised_host, *sorted(names_by_broker[broker.pk])] for broker in brokers}
