"""Implementation of the agent's control plane by PostgreSQL: rows, and notifications by LISTEN."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection
from django.db.migrations.loader import MigrationLoader
from django.db.models import Count, Q
from django.utils import timezone

from brokers import services
from brokers.agent import broker_certificates, check_rules
from brokers.agent.check_rules import Check
from brokers.agent.control_plane import ControlPlaneUnavailable, HostFacts, WantedHost
from brokers.agent.defaults import cluster_defaults
from brokers.contract.agent_channel import AGENT_CHANNEL
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import CA_FILE
from brokers.contract.version import VERSION
from brokers.infra.certificates import write_private
from brokers.infra.upstream_login import upstream_of
from brokers.infra.zookeeper import ensemble_of, identity
from brokers.models import Broker, Cluster, Host, PortLease
from tenants.errors import Unavailable

log = structlog.get_logger(__name__)


@contextmanager
def _translate_database_errors() -> Iterator[None]:
    """Translates errors of the database to `ControlPlaneUnavailable`."""
    try:
        yield
    except DatabaseError as error:
        log.warning("agent.no_database", reason=type(error).__name__)
        raise ControlPlaneUnavailable(type(error).__name__) from error


class DatabaseFacts:
    """Facts for the checks of a host, from the database."""

    def version_check(self) -> Check:
        with connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            applied = {f"{app}.{name}" for app, name in cursor.fetchall()}
        known, replaced = _known_migrations()
        return check_rules.version_check(VERSION, applied - known - replaced, known - applied)

    def clock_offset_ms(self) -> int:
        """Returns how far this machine's clock is ahead of the database's, accurate to half the time of the query."""
        before_s = time.time()
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
            (database_s,) = cursor.fetchone()
        return round(((before_s + time.time()) / 2 - float(database_s)) * 1_000)

    def own_ports(self, host: Host) -> set[int]:
        return set(PortLease.objects.filter(host=host).values_list("port", flat=True))

    def broker_directories(self, host: Host) -> list[str]:
        directories_by_broker = Broker.objects.filter(host=host, removed_at=None).values_list("data_dirs", flat=True)
        return [path for paths in directories_by_broker for path in paths]

    def record_checks(self, host: Host, checks: list[Check], machine: Mapping[str, Any]) -> None:
        services.store_checks(host.pk, checks, VERSION, machine)

    def close(self) -> None:
        connection.close()


class DatabaseControlPlane:
    """Control plane of one host as rows of the database."""

    def __init__(self, host_name: str) -> None:
        self._host_name = host_name
        self._listening_on: object | None = None
        self._certificates = broker_certificates.CertificateRenewal()
        self.facts: HostFacts = DatabaseFacts()

    def begin_round(self) -> None:
        close_old_connections()

    def wanted_host(self) -> WantedHost | None:
        with _translate_database_errors():
            return self._read_host()

    def _read_host(self) -> WantedHost | None:
        host = Host.objects.filter(name=self._host_name, removed_at=None).first()
        if host is None:
            return None
        Host.objects.filter(pk=host.pk).update(agent_seen_at=timezone.now())
        return WantedHost(
            host, list(Broker.objects.filter(host=host).select_related("cluster", "host").order_by("number"))
        )

    def renew_certificates(self, brokers: Sequence[Broker], now_s: float) -> None:
        self._certificates.renew(brokers, now_s)

    def settings_of(self, broker: Broker) -> BrokerProcessSettings:
        try:
            with _translate_database_errors():
                broker_settings = process_settings(broker, cluster_facts([broker.cluster_id])[broker.cluster_id])
                if broker_settings.upstream_file:
                    _write_upstream(Path(broker_settings.upstream_file), broker.cluster)
                return broker_settings
        except Unavailable as error:
            raise OSError(error.detail) from error

    def store_process_state(self, broker_id: str, fields: dict[str, Any]) -> None:
        with _translate_database_errors():
            services.store_process_state(broker_id, **fields)

    def count_restart(self, broker_id: str) -> None:
        with _translate_database_errors():
            services.count_restart(broker_id)

    def wait(self, timeout_s: float) -> None:
        """Waits for a notification by PostgreSQL (LISTEN), for `timeout_s` at most."""
        try:
            connection.ensure_connection()
            raw = connection.connection
            if self._listening_on is not raw:  # a new connection has no LISTEN
                with connection.cursor() as cursor:
                    cursor.execute(f"LISTEN {AGENT_CHANNEL}")
                self._listening_on = raw
            for _ in raw.notifies(timeout=timeout_s, stop_after=1):
                return
        except (DatabaseError, psycopg.Error) as error:
            log.warning("agent.no_database", reason=type(error).__name__)
            connection.close()
            time.sleep(timeout_s)

    def close(self) -> None:
        """Does nothing: each state was written when it was observed."""


class ClusterFacts(NamedTuple):
    """Facts about a cluster for the settings of its brokers: the number of brokers, and True if each has a zone."""

    brokers: int = 0
    has_zones: bool = False


def cluster_facts(cluster_ids: Iterable[str]) -> dict[str, ClusterFacts]:
    """Returns the facts about each cluster."""
    unique_ids = set(cluster_ids)
    rows = Broker.objects.filter(cluster__in=unique_ids, removed_at=None).order_by().values("cluster_id")
    counts = rows.annotate(broker_count=Count("pk"), zoneless_count=Count("pk", filter=Q(rack="", host__zone="")))
    return dict.fromkeys(unique_ids, ClusterFacts()) | {
        row["cluster_id"]: ClusterFacts(row["broker_count"], has_zones=not row["zoneless_count"]) for row in counts
    }


def process_settings(broker: Broker, facts: ClusterFacts) -> BrokerProcessSettings:
    """Returns the settings of a broker's process.

    Zones take effect once every broker of the cluster has one: a topic cannot be created while only some have (ASG-7).
    """
    zookeeper_identity = identity()
    return BrokerProcessSettings(
        broker_id=broker.number,
        cluster_id=broker.cluster_id,
        zookeeper=f"{ensemble_of(broker.cluster)}{broker.cluster.chroot}",
        data_dirs=tuple(broker.data_dirs),
        bind_host=broker.host.bind_host,
        internal_host=broker.host.internal_host,
        internal_port=broker.internal_port,
        admin_port=broker.admin_port,
        control_secret_file=broker.cluster.control_secret_file,
        zookeeper_credentials_file=settings.ZOOKEEPER_BROKER_FILE if zookeeper_identity else "",
        zookeeper_control_digest=zookeeper_identity.access.control if zookeeper_identity else "",
        zookeeper_ca_file=settings.ZOOKEEPER_TLS.ca_file if settings.ZOOKEEPER_TLS else "",
        zookeeper_certificate_file=settings.ZOOKEEPER_BROKER_CERTIFICATE_FILE,
        tls_certificate_file=str(broker_certificates.certificate_file_of(broker)),
        internal_security=settings.INTERNAL_SECURITY,
        internal_certificate_file=str(broker_certificates.internal_certificate_file_of(broker)),
        internal_ca_file=str(settings.INTERNAL_TLS_DIR / CA_FILE),
        upstream_file=str(upstream_file_of(broker.cluster)) if broker.cluster.is_kafka else "",
        rack=(broker.effective_rack or None) if facts.has_zones else None,
        overrides=cluster_defaults(facts.brokers)
        | {str(key): _kafka_text(value) for key, value in broker.overrides.items()},
    )


def upstream_file_of(cluster: Cluster) -> Path:
    """Returns the file on a host from which gateways read their upstream, with the login for it."""
    return Path(settings.STATE_DIR) / "secrets" / f"upstream-{cluster.pk}.json"


def _write_upstream(file: Path, cluster: Cluster) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(file, upstream_of(cluster.kafka).to_json().encode())


def _kafka_text(value: object) -> str:
    """Returns a JSON value as Kafka writes it: `false`, not `False`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _known_migrations() -> tuple[set[str], set[str]]:
    """Returns the migrations of the installed code, and those that squashed ones replace."""
    migrations = MigrationLoader(None).disk_migrations
    replaced = {f"{app}.{name}" for migration in migrations.values() for app, name in migration.replaces}
    return {f"{app}.{name}" for app, name in migrations}, replaced
