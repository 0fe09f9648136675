"""A fleet without processes: rows of a cluster, and brokers that only acknowledge, over a real ZooKeeper."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from brokers.contract import documents, paths
from brokers.contract.documents import BrokerDocument, InstanceAck, InstanceDocument
from brokers.models import Cluster, Placement
from brokers.operations.seed import seed_fleet
from instances import interfaces
from instances.interfaces import PlanTerms
from instances.lifecycle.phases import Phase
from instances.models import Instance, Route, RouteCertificates
from instances.routes import certificate_checks
from tenants.models import Tenant
from tests.testkit.client_certificates import Authority
from tests.testkit.instances import with_open_route

_numbers = itertools.count(1)

SMALL = PlanTerms(
    code="small",
    name="Small",
    bandwidth_mb_s=5,
    storage_gb=20,
    bandwidth_mb_s_max=50,
    storage_gb_max=200,
    partitions_max=50,
)
LARGE = PlanTerms(
    code="large",
    name="Large",
    bandwidth_mb_s=500,
    storage_gb=500,
    bandwidth_mb_s_max=100_000,
    storage_gb_max=1_000_000,
    partitions_max=500,
)


def catalogue(
    code: str | None,
    *,
    bandwidth_mb_s: int | None = None,
    storage_gb: int | None = None,
    current_plan: str | None = None,
    currency: str | None = None,
) -> PlanTerms | None:
    """Returns two plans, in billing's terms."""
    if code is not None:
        return {"small": SMALL, "large": LARGE}.get(code)
    for plan in (SMALL, LARGE):
        if (bandwidth_mb_s or 0) <= plan.bandwidth_mb_s_max and (storage_gb or 0) <= plan.storage_gb_max:
            return plan
    return None


@contextmanager
def plugged(port: interfaces.Interface[object], implementation: object) -> Iterator[None]:
    """Plugs another implementation into an interface for a while."""
    before = port._plugged
    port.plug(implementation)
    try:
        yield
    finally:
        port._plugged = before


def make_fleet(tmp_path: Path, *, brokers: int = 3, name: str | None = None, **options: int) -> Cluster:
    """Creates rows of a cluster with its own secret; ports of hosts do not overlap between fleets."""
    number = next(_numbers)
    secret = tmp_path / f"secret-{number}"
    secret.write_text("not much of a secret")
    first = 20_000 + 100 * (number % 80)
    cluster = seed_fleet(
        brokers=brokers,
        cluster_name=name or f"fleet-{number}",
        host_name=f"host-{number}",
        port_base=first,
        ports=options.get("ports", 60),
        internal_port_base=first + 60,
        admin_port_base=first + 80,
        data_root=tmp_path / "brokers",
        control_secret_file=secret,
    )
    # Reported by the agent of brokers that are asked by the secret, as are those of `EngineCluster`.
    cluster.brokers.update(process_has_tls=False)
    return cluster


def make_instance(tenant: Tenant, **fields: object) -> Instance:
    """Creates an instance in the way of the service, in the given phase."""
    defaults: dict[str, object] = {
        "name": f"instance-{next(_numbers)}",
        "plan": "small",
        "bandwidth_mb_s": 5,
        "storage_gb": 20,
        "partitions_max": 50,
    }
    return with_open_route(Instance.objects.create(tenant=tenant, **(defaults | fields)))


def make_running(tenant: Tenant, **fields: object) -> Instance:
    """Creates a running instance without brokers or documents behind it."""
    from django.utils import timezone

    known = {
        "phase": Phase.RUNNING.value,
        "generation": 1,
        "observed_generation": 1,
        "endpoints": {"1": "127.0.0.1:19000", "2": "127.0.0.1:19001"},
        "first_running_at": timezone.now(),
    }
    return make_instance(tenant, **(known | fields))


def make_secured_route(instance: Instance, authority: Authority, name: str = "secure") -> Route:
    """Creates a route with client certificates: an authority, a list, and its own certificate."""
    from django.utils import timezone

    now = timezone.now()
    ca = certificate_checks.client_ca(authority.pem, now)
    revoked = certificate_checks.revocation_list(authority.revoked(), authority.pem, {}, now)
    own = certificate_checks.server_certificate(*authority.server("before.example"), b"for tests", now)
    route = Route.objects.create(
        instance=instance,
        name=name,
        security="mtls",
        client_ca=ca.summary,
        revocation=revoked.summary,
        certificate=own.summary,
    )
    RouteCertificates.objects.create(
        route=route,
        client_ca_pem=ca.pem,
        revoked=revoked.revoked,
        crl_numbers=revoked.numbers,
        crl_parts=revoked.parts,
        certificate_pem=own.pem,
        private_key_pem=own.encrypted_key_pem,
    )
    return route


def place(instance: Instance, cluster: Cluster) -> Placement:
    """Creates a placement in the way of the reconciler."""
    return Placement.objects.create(
        instance=instance, cluster=cluster, bandwidth_mb_s=instance.bandwidth_mb_s, storage_gb=instance.storage_gb
    )


class AcknowledgingBrokers:
    """Brokers 1 to N of one cluster: they register, watch the change log, and acknowledge every document that they see.
    `refuses` maps a broker to ports it cannot open; `silent` brokers live, but do not answer.
    """

    def __init__(self, address: str, cluster: Cluster, *, count: int = 3) -> None:
        self.root = cluster.chroot
        self.count = count
        self.refuses: dict[int, set[int]] = {}
        self.silent: set[int] = set()
        self.documents: dict[str, InstanceDocument] = {}
        self._client = KazooClient(hosts=address, timeout=10)
        self._lock = threading.Lock()

    def start(self) -> None:
        self._client.start()
        for path in paths.PERSISTENT_AT_START:
            self._client.ensure_path(self.root + path)
        for broker in range(1, self.count + 1):
            document = BrokerDocument(host="127.0.0.1", port=9, admin_port=9, timestamp_ms=0)
            self._client.create(self.root + paths.broker(broker), document.to_json(), ephemeral=True)
        self._client.ChildrenWatch(self.root + paths.CHANGES, self._look)

    def stop(self) -> None:
        self._client.stop()
        self._client.close()

    def die(self, broker: int) -> None:
        """Ends the session of one broker."""
        self._client.delete(self.root + paths.broker(broker))

    def look_again(self) -> None:
        """Applies a change of `silent` or `refuses`."""
        self._look([])

    def create_topic(self, internal: str) -> None:
        """Creates a topic in the way of a broker."""
        document = documents.TopicDocument(topic_id="AAAAAAAAAAAAAAAAAAAAAA", assignment={0: (1,)})
        self._client.create(self.root + paths.topic(internal), document.to_json())

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self._client.get_children(self.root + path))
        except NoNodeError:
            return []

    def read(self, path: str) -> bytes | None:
        try:
            return self._client.get(self.root + path)[0]
        except NoNodeError:
            return None

    def write(self, path: str, raw: bytes) -> None:
        self._client.set(self.root + path, raw)

    def delete(self, path: str) -> None:
        self._client.delete(self.root + path, recursive=True)

    def _look(self, _children: list[str]) -> None:
        with self._lock:
            self.documents = {}
            for instance_id in self.children(paths.INSTANCES):
                raw = self.read(paths.instance(instance_id))
                if raw is None:
                    continue
                self.documents[instance_id] = document = InstanceDocument.from_json(raw)
                alive = {int(name) for name in self.children(paths.BROKER_IDS)}
                for broker in document.serving & alive - self.silent:
                    self._acknowledge(instance_id, broker, document)

    def _acknowledge(self, instance_id: str, broker: int, document: InstanceDocument) -> None:
        routes = [route for route in document.effective_routes if broker in route.ports]
        refused = tuple(route.name for route in routes if route.ports[broker] in self.refuses.get(broker, set()))
        ack = InstanceAck(
            generation=document.generation,
            port=routes[0].ports[broker],
            listening=not refused,
            error="address already in use" if refused else None,
            not_open=refused,
        )
        path = self.root + paths.instance_ack(instance_id, broker)
        try:
            self._client.create(path, ack.to_json(), ephemeral=True, makepath=True)
        except NodeExistsError:
            self._client.set(path, ack.to_json())
