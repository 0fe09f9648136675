"""PostgreSQL, Redis and ZooKeeper of one state directory: embedded, or external by environment variables."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from brokers.contract.process_identity import CONTROL_PROCESSES, MUTUAL_TLS, control
from brokers.contract.zookeeper_access import Credentials, TreeAccess, read_credentials
from brokers.contract.zookeeper_tls import zookeeper_tls
from brokers.infra.certificates import ensure_ca, ensure_internal_ca, ensure_process_certificate, ensure_route_keys
from config.embedded.java import Java, find_java
from config.embedded.kafka import EmbeddedKafka, find_jars
from config.embedded.postgres import EmbeddedPostgres
from config.embedded.process import Child, StartFailed
from config.embedded.redis import EmbeddedRedis
from config.embedded.zookeeper import EmbeddedZooKeeper
from config.embedded.zookeeper_acls import ForeignEnsembleAcls, OwnEnsembleAcls
from config.environment import (
    INTERNAL_TLS_DIR,
    SECRETS_DIR,
    TLS_DIR,
    ZOOKEEPER_BROKER_CERTIFICATE_FILE,
    ZOOKEEPER_CA_FILE,
    ZOOKEEPER_CONTROL_CERTIFICATE_FILE,
    ensure_secret,
    internal_security,
)
from config.supervisor.external import check as check_external
from config.supervisor.options import UpOptions
from config.supervisor.state import StateDirectory

START_TIMEOUT_S = 30.0
# Files with user:password of the control plane and of brokers for ZooKeeper.
CONTROL_FILE = "PENSTOCK_ZOOKEEPER_CONTROL_FILE"
BROKER_FILE = "PENSTOCK_ZOOKEEPER_BROKER_FILE"
ZOOKEEPER_TLS_VARIABLES = (
    ZOOKEEPER_CA_FILE,
    ZOOKEEPER_CONTROL_CERTIFICATE_FILE,
    ZOOKEEPER_BROKER_CERTIFICATE_FILE,
)


class Service(Protocol):
    """Common interface of the services."""

    child: Child

    def start(self) -> None: ...

    def is_ready(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services to start, slowest first, and the addresses of all."""

    embedded: tuple[Service, ...]
    external: tuple[str, ...]
    addresses: dict[str, str]
    java: Java
    kafka: EmbeddedKafka | None = None

    def environment(self) -> dict[str, str]:
        """Returns the environment of our programs: addresses, and Java and Python for Spark."""
        return {
            **os.environ,
            **self.addresses,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "JAVA_HOME": str(self.java.spark_home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }


def plan(options: UpOptions, state: StateDirectory) -> Services:
    """Decides which services are embedded. A service with a URL in the environment is external.

    Raises:
        StartFailed: an embedded service lacks something, or an external one does not answer.
    """
    java = find_java(state.root / "java")
    embedded: list[Service] = []
    external: list[str] = []
    addresses = {
        "PENSTOCK_STATE_DIR": str(state.root),
        "PENSTOCK_PUBLIC_URL": os.environ.get("PENSTOCK_PUBLIC_URL") or f"http://127.0.0.1:{options.http_port}",
    }
    for variable, build in _BUILDERS.items():
        url = os.environ.get(variable)
        if url:
            check_external(variable, url)
            external.append(variable)
            addresses[variable] = url
            if variable == "ZOOKEEPER_URL":
                addresses |= _guard_foreign(url) | _tls_of_foreign()
        else:
            _refuse_foreign_tls(variable)
            service, own_addresses = build(options, state, java)
            embedded.append(service)
            addresses |= own_addresses
    kafka = _kafka(options, state, java) if options.kafka else None
    if kafka is not None:
        embedded.insert(0, kafka)
    return Services(embedded=tuple(embedded), external=tuple(external), addresses=addresses, java=java, kafka=kafka)


def _kafka(options: UpOptions, state: StateDirectory, java: Java) -> EmbeddedKafka:
    return EmbeddedKafka(
        state.root / "kafka",
        port=state.port("kafka", options),
        controller_port=state.port("kafka_controller", options),
        jars=find_jars(),
        java=java,
        log_file=state.log_file("kafka"),
    )


def _zookeeper(options: UpOptions, state: StateDirectory, java: Java) -> tuple[Service, dict[str, str]]:
    log_file = state.log_file("zookeeper")
    port = state.port("zookeeper", options)
    files = {role: _ensure_zookeeper_credentials(state, role) for role in ("super", "control", "broker")}
    credentials = {role: read_credentials(file) for role, file in files.items()}
    acls = OwnEnsembleAcls(
        credentials["super"], TreeAccess(broker=credentials["broker"].digest, control=credentials["control"].digest)
    )
    server = EmbeddedZooKeeper(state.root / "zookeeper", port=port, java=java, log_file=log_file, acls=acls)
    variables = {CONTROL_FILE: str(files["control"]), BROKER_FILE: str(files["broker"])}
    return server, {"ZOOKEEPER_URL": server.address} | variables


def _ensure_zookeeper_credentials(state: StateDirectory, role: str) -> Path:
    return ensure_secret(state.root, f"zookeeper_{role}", prefix=f"{role}:")


def _guard_foreign(address: str) -> dict[str, str]:
    """Sets ACLs in an external ZooKeeper if credentials for it are configured.

    Raises:
        StartFailed: only one of the two is configured, or they cannot be used.
    """
    files_by_variable = {variable: os.environ.get(variable, "") for variable in (CONTROL_FILE, BROKER_FILE)}
    if not any(files_by_variable.values()):
        return {}
    credentials: list[Credentials] = []
    for variable, file in files_by_variable.items():
        try:
            credentials.append(read_credentials(Path(file)))
        except (OSError, ValueError) as error:
            raise StartFailed(
                f"{variable} does not name a file with user:password: {error}.",
                f"Name one with {CONTROL_FILE} and another one with {BROKER_FILE}, or neither.",
            ) from error
    control, broker = credentials
    tls = zookeeper_tls(os.environ.get(ZOOKEEPER_CA_FILE, ""), os.environ.get(ZOOKEEPER_CONTROL_CERTIFICATE_FILE, ""))
    ForeignEnsembleAcls(credentials, TreeAccess(broker=broker.digest, control=control.digest), tls).apply(
        address.removeprefix("zookeeper://").split("/")[0]
    )
    return files_by_variable


def _tls_of_foreign() -> dict[str, str]:
    """Returns the TLS variables that other commands need to reach it."""
    return {name: os.environ[name] for name in ZOOKEEPER_TLS_VARIABLES if os.environ.get(name)}


def _refuse_foreign_tls(variable: str) -> None:
    """Raises StartFailed if TLS is configured for the embedded ZooKeeper, which only has a loopback port."""
    configured = [name for name in ZOOKEEPER_TLS_VARIABLES if os.environ.get(name)]
    if variable == "ZOOKEEPER_URL" and configured:
        raise StartFailed(
            f"{configured[0]} is for a ZooKeeper of yours, and ZOOKEEPER_URL does not name one.",
            f"Set ZOOKEEPER_URL as well, or unset {', '.join(configured)}.",
        )


def _redis(_options: UpOptions, state: StateDirectory, _java: Java) -> tuple[Service, dict[str, str]]:
    password = ensure_secret(state.root, "redis_password").read_text(encoding="ascii").strip()
    server = EmbeddedRedis(state.root / "redis", password=password, log_file=state.log_file("redis"))
    return server, {"REDIS_URL": server.url}


def _postgres(_options: UpOptions, state: StateDirectory, _java: Java) -> tuple[Service, dict[str, str]]:
    server = EmbeddedPostgres(state.root / "postgres", log_file=state.log_file("postgres"))
    return server, {"DATABASE_URL": server.url}


# Start order: a JVM takes longest to start.
_BUILDERS = {"ZOOKEEPER_URL": _zookeeper, "REDIS_URL": _redis, "DATABASE_URL": _postgres}


def ensure_secrets(state: StateDirectory) -> None:
    """Generates once the secrets that our programs read from the state directory."""
    ensure_secret(state.root, "secret_key")
    if internal_security() != MUTUAL_TLS:
        # Otherwise only brokers of versions before certificates know it, which read it from here.
        ensure_secret(state.root, "control_secret")
    tls_directory = Path(os.environ.get("PENSTOCK_TLS_DIR") or state.root / SECRETS_DIR / TLS_DIR)
    ensure_ca(tls_directory)
    ensure_route_keys(tls_directory)
    internal = Path(os.environ.get("PENSTOCK_INTERNAL_TLS_DIR") or state.root / SECRETS_DIR / INTERNAL_TLS_DIR)
    ensure_internal_ca(internal)
    for process in CONTROL_PROCESSES:
        ensure_process_certificate(internal, control(process))
