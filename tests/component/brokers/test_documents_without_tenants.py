"""Documents from before instances named their tenant: the sweep adds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.contract.documents import InstanceDocument
from brokers.models import Broker, Placement, PortLease
from brokers.placement import port_leases
from brokers.provisioning import steps, sweep
from brokers.provisioning.publisher import Publisher
from instances import interfaces as instance_ports
from instances.lifecycle.phases import Phase
from tests.testkit.api_cases import make_tenant
from tests.testkit.fleet import catalogue, make_fleet, make_instance, plugged


class Documents:
    """A ZooKeeper client for documents of instances."""

    def __init__(self, by_instance: dict[str, InstanceDocument]) -> None:
        self.by_instance = by_instance

    def get_children(self, _path: str) -> list[str]:
        return list(self.by_instance)

    def get_async(self, path: str) -> Any:
        raw = self.by_instance[path.rpartition("/")[2]].to_json()
        return SimpleNamespace(get=lambda: (raw, None))


@pytest.mark.django_db
def test_the_sweep_has_a_document_without_a_tenant_written_again(tmp_path: Path) -> None:
    with plugged(instance_ports.plan_catalogue, catalogue):
        cluster = make_fleet(tmp_path, brokers=3)
    instance = make_instance(make_tenant(), phase=Phase.RUNNING.value)
    Placement.objects.create(instance=instance, cluster=cluster, bandwidth_mb_s=1, storage_gb=1)
    port_leases.lease(instance, Broker.objects.filter(cluster=cluster).select_related("host"))
    leases = list(PortLease.objects.filter(instance=instance).select_related("broker", "host"))
    document = steps.document_of(instance, leases)
    assert document.tenant_id == instance.tenant_id
    for published, due in ((replace(document, tenant_id=None), [instance.pk]), (document, [])):
        client: Any = Documents({instance.pk: published})
        assert sweep.differing_instance_ids(cluster, Publisher(client, "").generations()) == due
