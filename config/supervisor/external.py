"""Services the environment points at: asked before anything starts, so that a wrong URL is one clear sentence."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import psycopg
import redis

from config.embedded.process import StartFailed
from config.logging import redact

PROBE_TIMEOUT_S = 5
ZOOKEEPER_PORT = 2_181


def check(variable: str, address: str) -> None:
    """Ask the service whether it is there.

    Raises:
        StartFailed: it does not answer, or refuses us.
    """
    try:
        _PROBES[variable](address)
    except (psycopg.Error, redis.RedisError, OSError, ValueError) as error:
        shown = redact(None, "", {"event": address})["event"]
        reason = " ".join(str(error).split()) or type(error).__name__
        raise StartFailed(
            f"{variable} points at {shown}, which does not serve us: {reason}.",
            f"Correct {variable}, or unset it to use the embedded service.",
        ) from None


def _ask_postgres(address: str) -> None:
    with psycopg.connect(address, connect_timeout=PROBE_TIMEOUT_S) as link:
        link.execute("SELECT 1")


def _ask_redis(address: str) -> None:
    with redis.Redis.from_url(address, socket_connect_timeout=PROBE_TIMEOUT_S, socket_timeout=PROBE_TIMEOUT_S) as link:
        link.ping()


def _ask_zookeeper(address: str) -> None:
    """One server of the ensemble is enough: the others are tried by the clients."""
    failure: OSError | None = None
    for server in address.removeprefix("zookeeper://").split("/")[0].split(","):
        parts = urlsplit(f"//{server}")
        try:
            socket.create_connection((parts.hostname or "", parts.port or ZOOKEEPER_PORT), PROBE_TIMEOUT_S).close()
        except OSError as error:
            failure = error
        else:
            return
    raise failure or ValueError("it names no server")


_PROBES: dict[str, Callable[[str], None]] = {
    "DATABASE_URL": _ask_postgres,
    "REDIS_URL": _ask_redis,
    "ZOOKEEPER_URL": _ask_zookeeper,
}
