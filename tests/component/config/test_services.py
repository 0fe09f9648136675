"""The embedded services: each really works, and none outlives its parent."""

from __future__ import annotations

import psycopg
import redis
from kazoo.client import KazooClient

from config.embedded.postgres import EmbeddedPostgres


def test_postgres_answers_on_its_socket(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url) as link:
        row = link.execute("SHOW server_version_num").fetchone()
    assert row is not None
    assert int(row[0]) >= 180000


def test_redis_wants_its_password(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
    stranger = redis_url.replace(":tests-only@", "")
    with redis.Redis.from_url(stranger) as client:
        try:
            client.ping()
        except redis.AuthenticationError:
            return
    raise AssertionError("Redis answered a stranger")


def test_zookeeper_keeps_a_node(zookeeper_address: str) -> None:
    client = KazooClient(hosts=zookeeper_address)
    client.start(timeout=10)
    try:
        client.create("/test-config/node", b"value", makepath=True)
        assert client.get("/test-config/node")[0] == b"value"
    finally:
        client.stop()
        client.close()
