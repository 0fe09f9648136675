"""The cache with Redis, and as an empty cache while Redis is down."""

from __future__ import annotations

import pickle

import pytest
import redis

from config import settings as product_settings
from config.cache import ForgivingRedisCache
from config.embedded.process import free_port
from tenants.cached_values import CACHED_VALUE_BYTES_MAX

KEY = "a-key"


@pytest.fixture(autouse=True)
def _awake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForgivingRedisCache, "_paused_until_s", 0.0)


def test_it_keeps_values_while_redis_lives(redis_url: str) -> None:
    cache = ForgivingRedisCache(redis_url, {})
    cache.set(KEY, {"n": 1})
    assert cache.get(KEY) == {"n": 1}
    assert cache.add(KEY, 2) is False
    assert cache.delete(KEY) is True
    assert cache.get(KEY, "missing") == "missing"


def test_without_redis_it_is_empty_and_nothing_fails() -> None:
    cache = ForgivingRedisCache(f"redis://127.0.0.1:{free_port()}/0", {"OPTIONS": {"socket_connect_timeout": 0.2}})
    cache.set(KEY, 1)
    assert cache.get(KEY, "missing") == "missing"
    assert cache.get_many([KEY]) == {}
    assert cache.add(KEY, 1) is True
    assert cache.set_many({KEY: 1}) == []
    assert cache.has_key(KEY) is False
    assert cache.touch(KEY) is False
    assert cache.delete(KEY) is False
    cache.delete_many([KEY])


def test_a_value_that_cannot_be_kept_or_read_is_merely_missing(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ForgivingRedisCache(redis_url, {"VERSION": 2})
    cache.set(KEY, object())
    cache.set(KEY, "x" * CACHED_VALUE_BYTES_MAX)
    assert cache.get(KEY, "missing") == "missing"
    with redis.Redis.from_url(redis_url) as client:
        client.set(cache.make_key(KEY), pickle.dumps(["of an earlier version"]))
    assert cache.get(KEY, "missing") == "missing"
    assert cache.get_many([KEY]) == {}
    assert caplog.text.count("the cache does not hold a value") == 4


def test_values_pickled_by_an_earlier_version_lie_under_other_keys() -> None:
    """Version 1, Django's default, was used by earlier installations."""
    assert product_settings.CACHES["default"]["VERSION"] == 2


def test_integers_are_counted_by_redis(redis_url: str) -> None:
    cache = ForgivingRedisCache(redis_url, {})
    cache.set("counted", 1)
    assert cache.incr("counted") == 2
    assert cache.get("counted") == 2
