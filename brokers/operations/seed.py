"""Seeds the fleet of a fresh installation: one cluster, one host, N brokers. Idempotent."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import transaction

from brokers.limits import BROKERS_PER_CLUSTER_MAX, PORTS_PER_HOST
from brokers.models import Broker, Cluster, Host

FIRST_CLUSTER = "local"
FIRST_HOST = "localhost"
INTERNAL_PORT_BASE = 18_001
ADMIN_PORT_BASE = 18_101
# A user who tries the product starts consumers one by one: the first must not wait for others.
OVERRIDES = {"group.initial.rebalance.delay.ms": "0"}


@transaction.atomic
def seed_fleet(
    *,
    brokers: int,
    port_base: int = 19_000,
    internal_port_base: int = INTERNAL_PORT_BASE,
    admin_port_base: int = ADMIN_PORT_BASE,
    ports: int = PORTS_PER_HOST,
    host_name: str = FIRST_HOST,
    cluster_name: str = FIRST_CLUSTER,
    address: str = "127.0.0.1",
    data_root: Path | None = None,
    control_secret_file: Path | None = None,
) -> Cluster:
    """Creates or updates rows for a cluster of `brokers` brokers on one host; existing rows keep their ids, ports and
    directories.

    Ports may differ after a restart (another state of the machine): the host's pool and the brokers' own ports follow
    the arguments, leases stay as they are.
    """
    if not 1 <= brokers <= BROKERS_PER_CLUSTER_MAX:
        raise ValueError(f"a cluster has 1 to {BROKERS_PER_CLUSTER_MAX} brokers, not {brokers}")
    root = data_root or settings.STATE_DIR / "brokers"
    secret = str(control_secret_file or settings.CONTROL_SECRET_FILE)
    cluster, _ = Cluster.objects.active().update_or_create(name=cluster_name, defaults={"control_secret_file": secret})
    # All clusters of an installation share the secret, which moves with its state directory.
    Cluster.objects.active().exclude(pk=cluster.pk).filter(operations__isnull=False).update(control_secret_file=secret)
    host, _ = Host.objects.update_or_create(
        name=host_name,
        removed_at=None,
        defaults={
            "port_first": port_base,
            "port_last": min(65_535, port_base + ports - 1),
            "bind_host": address,
            "advertised_host": address,
            "internal_host": address,
        },
    )
    for index in range(brokers):
        number = index + 1
        own_ports = {"internal_port": internal_port_base + index, "admin_port": admin_port_base + index}
        Broker.objects.update_or_create(
            cluster=cluster,
            number=number,
            defaults=own_ports,
            create_defaults={
                "host": host,
                "data_dirs": [str(root / str(number) / "data")],
                "overrides": dict(OVERRIDES),
                **own_ports,
            },
        )
    for broker in Broker.objects.filter(host=host, removed_at=None):
        _update_log_directories(broker, root if broker.cluster_id == cluster.pk else root / broker.cluster_id)
    return cluster


def _update_log_directories(broker: Broker, root: Path) -> None:
    """Updates the log directories after a state directory was moved, copied or restored elsewhere with its logs.

    Otherwise its brokers would begin empty in the former directory, or write into a directory that another one uses.
    Directories configured by hand do not lie below a state directory and stay.
    """
    expected = root / str(broker.number) / "data"
    suffix = expected.parts[-3:]
    directories = [str(expected) if Path(path).parts[-3:] == suffix else path for path in broker.data_dirs]
    if directories != broker.data_dirs and (expected / "meta.properties").is_file():
        broker.data_dirs = directories
        broker.save(update_fields=["data_dirs"])
