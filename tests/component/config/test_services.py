"""The embedded services: each works, and none outlives its parent."""

from __future__ import annotations

import os
import socket
import struct

import psycopg
import pytest
import redis
from kazoo.client import KazooClient

from config.embedded.postgres import DATABASE, SOCKET_NAME, USER, EmbeddedPostgres

ANSWER_TIMEOUT_S = 10.0
PROTOCOL_3 = 196_608


def test_postgres_answers_on_its_socket(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url) as link:
        row = link.execute("SHOW server_version_num").fetchone()
    assert row is not None
    assert int(row[0]) >= 180000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_postgres_asks_the_kernel_who_connects(postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own account can open the socket's directory, but has no role in the database."""
    assert postgres.user is not None
    monkeypatch.chdir(postgres.socket_dir)  # which lies below directories that are closed to that account
    words = b"".join(word + b"\0" for word in (b"user", USER.encode(), b"database", DATABASE.encode(), b""))
    with socket.socket(socket.AF_UNIX) as link:
        os.seteuid(postgres.user.pw_uid)
        try:
            link.connect(SOCKET_NAME)
        finally:
            os.seteuid(0)
        link.settimeout(ANSWER_TIMEOUT_S)
        link.sendall(struct.pack("!ii", 8 + len(words), PROTOCOL_3) + words)
        answer = b"".join(iter(lambda: link.recv(4096), b""))
    assert b'Peer authentication failed for user "penstock"' in answer


def test_postgres_listens_on_no_port_and_what_it_makes_is_its_owners(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url) as link:
        assert link.execute("SHOW listen_addresses").fetchone() == ("",)
    paths = [postgres.directory, *postgres.directory.rglob("*"), postgres.socket_dir, *postgres.socket_dir.iterdir()]
    assert not [path for path in paths if path.stat().st_mode & 0o077]


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
