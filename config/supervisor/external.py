"""Checks of external services before anything starts, so that a wrong URL gives one clear message."""

from __future__ import annotations

import os
from collections.abc import Callable

import psycopg
import redis

from brokers.contract.zookeeper_tls import zookeeper_tls
from config.embedded.process import StartFailed
from config.environment import ZOOKEEPER_CA_FILE, ZOOKEEPER_CONTROL_CERTIFICATE_FILE
from config.logging import redact
from config.zookeeper_server import connect, servers_of

PROBE_TIMEOUT_S = 5


def check(variable: str, address: str) -> None:
    """Checks that the service is reachable.

    Raises:
        StartFailed: the service does not answer, or refuses the connection.
    """
    try:
        _PROBES[variable](address)
    except (psycopg.Error, redis.RedisError, OSError, ValueError) as error:
        redacted = redact(None, "", {"event": address})["event"]
        reason = " ".join(str(error).split()) or type(error).__name__
        raise StartFailed(
            f"{variable} points at {redacted}, which does not serve us: {reason}.",
            f"Correct {variable}, or unset it to use the embedded service.",
        ) from None


def _probe_postgres(address: str) -> None:
    with psycopg.connect(address, connect_timeout=PROBE_TIMEOUT_S) as connection:
        connection.execute("SELECT 1")


def _probe_redis(address: str) -> None:
    client = redis.Redis.from_url(address, socket_connect_timeout=PROBE_TIMEOUT_S, socket_timeout=PROBE_TIMEOUT_S)
    with client:
        client.ping()


def _probe_zookeeper(address: str) -> None:
    """Checks that one server of the ensemble answers; clients try the others."""
    tls = zookeeper_tls(os.environ.get(ZOOKEEPER_CA_FILE, ""), os.environ.get(ZOOKEEPER_CONTROL_CERTIFICATE_FILE, ""))
    failure: OSError | None = None
    for server in servers_of(address):
        try:
            connect(server, tls, PROBE_TIMEOUT_S).close()
        except OSError as error:
            failure = error
        else:
            return
    raise failure or ValueError("it names no server")


_PROBES: dict[str, Callable[[str], None]] = {
    "DATABASE_URL": _probe_postgres,
    "REDIS_URL": _probe_redis,
    "ZOOKEEPER_URL": _probe_zookeeper,
}
