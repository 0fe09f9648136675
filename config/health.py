"""Endpoints for load balancers and monitoring."""

from __future__ import annotations

from collections.abc import Callable

import prometheus_client
import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from config.zookeeper_server import connect, servers_of

PROBE_TIMEOUT_S = 1.0


@never_cache
@require_safe
def healthz(_request: HttpRequest) -> JsonResponse:
    """Liveness: the process answers, regardless of its dependencies."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(_request: HttpRequest) -> JsonResponse:
    """Readiness: PostgreSQL answers. Redis and ZooKeeper are reported, but pages work (degraded) without them."""
    required = {"postgres": _reason(_probe_postgres)}
    optional = {"redis": _reason(_probe_redis), "zookeeper": _reason(_probe_zookeeper)}
    reasons = [f"{name}: {reason}" for name, reason in required.items() if reason]
    degraded = [f"{name}: {reason}" for name, reason in optional.items() if reason]
    body = {"ready": not reasons, "reasons": reasons, "degraded": degraded}
    return JsonResponse(body, status=503 if reasons else 200)


@never_cache
@require_safe
def metrics(_request: HttpRequest) -> HttpResponse:
    """Prometheus metrics of the web process."""
    return HttpResponse(prometheus_client.generate_latest(), content_type=prometheus_client.CONTENT_TYPE_LATEST)


def _reason(probe: Callable[[], None]) -> str | None:
    try:
        probe()
    except (DatabaseError, redis.RedisError, OSError) as error:
        return type(error).__name__
    return None


def _probe_postgres() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _probe_redis() -> None:
    options = {"socket_connect_timeout": PROBE_TIMEOUT_S, "socket_timeout": PROBE_TIMEOUT_S}
    with redis.Redis.from_url(settings.REDIS_URL, **options) as client:
        client.ping()


def _probe_zookeeper() -> None:
    server = servers_of(settings.ZOOKEEPER_URL)[0]
    with connect(server, settings.ZOOKEEPER_TLS, PROBE_TIMEOUT_S) as link:
        link.sendall(b"srvr")
        if not link.recv(1):
            raise ConnectionError("closed without an answer")
