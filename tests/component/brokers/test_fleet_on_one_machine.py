"""Rows of a fleet on one machine, created by `up --hosts --clusters`."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.models import Broker, Cluster, Host
from config.supervisor import seed
from config.supervisor.options import UpOptions
from tests.testkit.fleet import make_fleet

pytestmark = pytest.mark.django_db


def test_hosts_have_loopback_addresses_and_clusters_lie_on_those_behind_the_first(tmp_path: Path) -> None:
    make_fleet(tmp_path, brokers=2, name="local")
    options = UpOptions(state_dir=tmp_path, port_base=26_000, brokers=2, clusters=2, hosts=3)
    assert seed.ensure_further_fleet(options, "local") == ["local-2", "local-3"]
    assert seed.ensure_further_fleet(options, "local") == ["local-2", "local-3"]
    second = Cluster.objects.get(name="local-2")
    placed = second.brokers.order_by("number").values_list("host__name", "host__advertised_host", "internal_port")
    assert list(placed) == [("local-2", "127.0.0.2", 25_001), ("local-3", "127.0.0.3", 25_001)]
    assert not seed.clusters_are_formed()
    directories = [path for broker in Broker.objects.all() for path in broker.data_dirs]
    assert len(set(directories)) == len(directories) == 4


def test_a_host_that_no_cluster_needs_stays_free(tmp_path: Path) -> None:
    make_fleet(tmp_path, brokers=1, name="local")
    seed.ensure_further_fleet(UpOptions(state_dir=tmp_path, port_base=26_000, brokers=1, hosts=2), "local")
    assert not Broker.objects.filter(host=Host.objects.get(name="local-2")).exists()
