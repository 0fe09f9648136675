"""PostgreSQL, Redis and ZooKeeper for one state directory: ours, or the ones the environment points at."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Protocol

from config.embedded.java import Java, find_java
from config.embedded.postgres import EmbeddedPostgres
from config.embedded.process import Child
from config.embedded.redis import EmbeddedRedis
from config.embedded.zookeeper import EmbeddedZooKeeper
from config.environment import ensure_secret
from config.supervisor.external import check as check_external
from config.supervisor.options import UpOptions
from config.supervisor.state import StateDirectory

START_TIMEOUT_S = 30.0


class Service(Protocol):
    """What the three have in common."""

    child: Child

    def start(self) -> None: ...

    def is_ready(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What has to be started here, slowest first, and the addresses of everything."""

    embedded: tuple[Service, ...]
    external: tuple[str, ...]
    addresses: dict[str, str]
    java: Java

    def environment(self) -> dict[str, str]:
        """The environment of our own programs: the addresses, and what Spark needs to find its Java and Python."""
        return {
            **os.environ,
            **self.addresses,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "JAVA_HOME": str(self.java.spark_home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }


def plan(options: UpOptions, state: StateDirectory) -> Services:
    """Decide what is embedded. A service whose URL is in the environment is somebody else's to start.

    Raises:
        StartFailed: something an embedded service needs is missing, or an external one does not answer.
    """
    java = find_java(state.root / "java")
    embedded: list[Service] = []
    external: list[str] = []
    addresses = {
        "PENSTOCK_STATE_DIR": str(state.root),
        "PENSTOCK_PUBLIC_URL": os.environ.get("PENSTOCK_PUBLIC_URL") or f"http://127.0.0.1:{options.http_port}",
    }
    for variable, build in _BUILDERS.items():
        given = os.environ.get(variable)
        if given:
            check_external(variable, given)
            external.append(variable)
            addresses[variable] = given
        else:
            service, address = build(options, state, java)
            embedded.append(service)
            addresses[variable] = address
    return Services(embedded=tuple(embedded), external=tuple(external), addresses=addresses, java=java)


def _zookeeper(options: UpOptions, state: StateDirectory, java: Java) -> tuple[Service, str]:
    log_file = state.log_file("zookeeper")
    port = state.port("zookeeper", options)
    server = EmbeddedZooKeeper(state.root / "zookeeper", port=port, java=java, log_file=log_file)
    return server, server.address


def _redis(options: UpOptions, state: StateDirectory, _java: Java) -> tuple[Service, str]:
    password = ensure_secret(state.root, "redis_password").read_text(encoding="ascii").strip()
    log_file = state.log_file("redis")
    port = state.port("redis", options)
    server = EmbeddedRedis(state.root / "redis", port=port, password=password, log_file=log_file)
    return server, server.url


def _postgres(_options: UpOptions, state: StateDirectory, _java: Java) -> tuple[Service, str]:
    server = EmbeddedPostgres(state.root / "postgres", log_file=state.log_file("postgres"))
    return server, server.url


# In the order they are started: a Java virtual machine takes longest to wake up.
_BUILDERS = {"ZOOKEEPER_URL": _zookeeper, "REDIS_URL": _redis, "DATABASE_URL": _postgres}


def ensure_secrets(state: StateDirectory) -> None:
    """Generate, once, the secrets our own programs read from the state directory."""
    for name in ("secret_key", "control_secret"):
        ensure_secret(state.root, name)
