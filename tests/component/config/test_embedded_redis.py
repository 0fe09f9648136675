"""The embedded Redis server: a private socket, no port, bounded memory, and the queue of the last run."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis
from celery import Celery

from config.embedded.process import wait_until
from config.embedded.redis import CLIENTS_MAX, MEMORY_MB_MAX, START_TIMEOUT_S, EmbeddedRedis
from config.environment import Environment
from tenants.api.rates import Counter

MB = 1_048_576


@contextmanager
def serving(directory: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(directory, password="pass word/?", log_file=directory.parent / "redis.log")
    server.start()
    try:
        wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)
        yield server
    finally:
        server.child.stop()


def test_it_listens_on_a_socket_of_its_owners_and_on_no_port(redis_server: EmbeddedRedis) -> None:
    assert redis_server.child.process is not None
    process = psutil.Process(redis_server.child.process.pid)
    assert not [link for link in process.net_connections() if link.status == psutil.CONN_LISTEN]
    assert stat.S_IMODE(redis_server.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(redis_server.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((redis_server.directory / "redis.conf").stat().st_mode) == 0o600


def test_memory_buffers_and_clients_are_limited_and_queues_are_never_evicted(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        answered = client.config_get("*")
        version = client.info("server")
    assert int(answered["maxmemory"]) == MEMORY_MB_MAX * MB
    assert answered["maxmemory-policy"] == "volatile-lru"
    assert int(answered["maxclients"]) == CLIENTS_MAX
    assert int(answered["maxmemory-clients"]) == 64 * MB
    assert f"normal {32 * MB} {8 * MB} 60" in answered["client-output-buffer-limit"]
    assert f"pubsub {32 * MB} {8 * MB} 60" in answered["client-output-buffer-limit"]
    assert (answered["enable-debug-command"], answered["enable-module-command"]) == ("no", "no")
    assert int(version["valkey_version"].split(".")[0]) >= 9


def test_a_queue_of_an_earlier_version_is_kept_in_a_directory_of_any_depth(tmp_path: Path) -> None:
    directory = tmp_path / ("a directory with spaces " * 8) / "redis"
    directory.mkdir(parents=True)
    words = [b"SELECT", b"0"], [b"RPUSH", b"penstock", b"a task"]
    (directory / "appendonly.aof").write_bytes(
        b"".join(
            b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
            for parts in words
        )
    )
    with serving(directory) as server:
        assert not server.socket.is_relative_to(directory)
        with redis.Redis.from_url(server.url) as client:
            assert client.lrange("penstock", 0, -1) == [b"a task"]
        assert Counter(server.url).count("somebody", 5) is not None


def test_celery_speaks_over_the_socket_in_json(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    app = Celery(broker=Environment.read().celery_broker_url)
    with app.connection_for_write() as link:
        app.send_task("nobody.has_it", args=["x"], queue="of-this-test", connection=link)
    with redis.Redis.from_url(redis_url) as client:
        queued = json.loads(client.lpop("of-this-test"))
    assert queued["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("given", "celery"),
    [
        ("redis://:p@host:6379/1", "redis://:p@host:6379/1"),
        ("rediss://host/0?ssl_cert_reqs=required", "rediss://host/0?ssl_cert_reqs=required&ssl_check_hostname=true"),
        ("unix://:p%20w@/run/redis.sock?db=2", "redis+socket://:p%20w@/run/redis.sock?virtual_host=2"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock"),
    ],
)
def test_celery_is_given_the_address_as_it_spells_it(given: str, celery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", given)
    assert Environment.read().celery_broker_url == celery
