"""The cache serves while Redis lives, and is merely empty while it does not."""

from __future__ import annotations

import pytest

from config.cache import ForgivingRedisCache
from config.embedded.process import free_port

KEY = "a-key"


@pytest.fixture(autouse=True)
def _awake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForgivingRedisCache, "_resting_until_s", 0.0)


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
