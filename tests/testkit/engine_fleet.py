"""Rows of the control plane for broker processes that a test runs itself."""

from __future__ import annotations

from pathlib import Path

from django.core.cache import cache

from brokers.models import Cluster, PortLease
from tests.testkit.api_cases import make_tenant
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_fleet, make_running, place

LEASED_PORT = 20_000


def create_fleet_rows(engines: EngineCluster, folder: Path, *instance_ids: str) -> Cluster:
    """Creates the cluster with its brokers, and running instances on all of them."""
    cache.clear()
    fleet = make_fleet(folder, brokers=len(engines.brokers))
    Path(fleet.control_secret_file).write_text(engines.secret)
    for engine in engines.brokers:
        settings = engine.settings
        rows = fleet.brokers.filter(number=settings.broker_id)
        rows.update(internal_port=settings.internal_port, admin_port=settings.admin_port)
    fleet.brokers.first().host.__class__.objects.update(internal_host="127.0.0.1")
    port = LEASED_PORT
    for instance_id in instance_ids:
        instance = make_running(make_tenant(), id=instance_id)
        place(instance, fleet)
        for broker in fleet.brokers.all():
            PortLease.objects.create(broker=broker, host=broker.host, instance=instance, port=port)
            port += 1
    return fleet
