"""The fleet of a product that runs on one machine: one cluster, one host, its brokers. Made at the first start.

Safe to call at every start: rows that exist are left as an operator set them.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings
from django.db import transaction

from brokers.choices import WantedState
from brokers.models import Broker, Cluster, Host
from tenants import audit
from tenants.actors import system_actor

READY_TIMEOUT_S = 0.5


@transaction.atomic
def ensure_local_fleet(
    *,
    cluster_name: str,
    host_name: str,
    ports: range,
    internal_ports: Iterable[int],
    admin_ports: Iterable[int],
    data_root: Path,
) -> list[Broker]:
    """The wanted state of a cluster on this machine: one broker per pair of internal and admin port.

    Args:
        cluster_name: how operators know the cluster.
        host_name: what this machine's agent is started with.
        ports: the pool tenants' listeners come from.
        internal_ports: one per broker, for brokers and the control plane.
        admin_ports: one per broker, for health, metrics and ledgers.
        data_root: each broker keeps its logs in a directory below.
    """
    acting = system_actor("installation")
    cluster, is_fresh = Cluster.objects.get_or_create(
        name=cluster_name, defaults={"control_secret_file": str(settings.CONTROL_SECRET_FILE)}
    )
    if is_fresh:
        audit.record(acting, "cluster.created", cluster, None, {"name": cluster_name})
    elif cluster.control_secret_file != str(settings.CONTROL_SECRET_FILE):
        cluster.control_secret_file = str(settings.CONTROL_SECRET_FILE)  # the state directory was moved
        cluster.save_changes(["control_secret_file"])
    host, is_fresh = Host.objects.get_or_create(
        name=host_name, defaults={"port_first": ports.start, "port_last": ports.stop - 1}
    )
    if is_fresh:
        audit.record(acting, "host.created", host, None, {"name": host_name})
    brokers = []
    for number, (internal_port, admin_port) in enumerate(zip(internal_ports, admin_ports, strict=True), start=1):
        broker, is_fresh = Broker.objects.get_or_create(
            cluster=cluster,
            number=number,
            defaults={
                "host": host,
                "internal_port": internal_port,
                "admin_port": admin_port,
                "data_dirs": [str(data_root / str(number))],
            },
        )
        if is_fresh:
            audit.record(acting, "broker.created", broker, None, {"number": number, "host": host_name})
        brokers.append(broker)
    return brokers


def not_serving(cluster_name: str) -> list[int]:
    """The numbers of the brokers that shall run and do not say yet that they serve."""
    wanted = Broker.objects.filter(cluster__name=cluster_name, wanted=WantedState.RUNNING).select_related("host")
    return [broker.number for broker in wanted if not _serves(broker)]


def _serves(broker: Broker) -> bool:
    host, port = broker.admin_address
    link = http.client.HTTPConnection(host, port, timeout=READY_TIMEOUT_S)
    try:
        link.request("GET", "/readyz")
        return link.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()
