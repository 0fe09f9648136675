"""Cache that tolerates loss: without Redis every read is a miss and every write is dropped.

Values are JSON, never pickle, so that write access to Redis does not allow code execution. Keys and values have a
maximum size, regardless of tenants' names and documents.

The cache contains sign-in limits and pages. Their loss degrades the service; pages that fail would be worse.
"""

from __future__ import annotations

import hashlib
import logging
import time
from typing import Any

from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError
from unfold.dataclasses import SearchResult

from tenants import cached_values

logger = logging.getLogger(__name__)

# Time after a failure in which Redis is not called: an outage costs one timeout, not one per call.
FAILURE_PAUSE_S = 5.0

KEY_CHARS_MAX = 250

cached_values.cacheable(SearchResult)  # the operator panel caches search results


class JsonSerializer:
    """Serialises integers natively, so that Redis can count them, and all other values by `cached_values`."""

    def dumps(self, value: Any) -> int | bytes:
        return value if type(value) is int else cached_values.dumps(value)

    def loads(self, data: bytes) -> Any:
        try:
            return int(data)
        except ValueError:
            return cached_values.loads(data)


def bounded_key(key: str, key_prefix: str, version: int) -> str:
    """Returns Django's key; a long one is replaced by its hash."""
    full_key = f"{key_prefix}:{version}:{key}"
    if len(full_key) <= KEY_CHARS_MAX:
        return full_key
    return f"{key_prefix}:{version}:sha256:{hashlib.sha256(str(key).encode()).hexdigest()}"


class ForgivingRedisCache(RedisCache):
    """Django's Redis cache that reports a miss if Redis does not answer or returns an unreadable value."""

    _paused_until_s = 0.0

    def __init__(self, server: Any, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._options: dict[str, Any] = {**params.get("OPTIONS", {}), "serializer": JsonSerializer}

    def _forgiving(self, name: str, fallback: Any, *args: Any, **options: Any) -> Any:
        if time.monotonic() < ForgivingRedisCache._paused_until_s:
            return fallback
        try:
            return getattr(super(), name)(*args, **options)
        except (cached_values.NotCacheable, cached_values.ValueTooLarge, cached_values.UnreadableValue) as error:
            logger.warning("the cache does not hold a value: %s: %s", type(error).__name__, error)
            return fallback
        except (RedisError, OSError):
            ForgivingRedisCache._paused_until_s = time.monotonic() + FAILURE_PAUSE_S
            logger.warning("the cache is off: redis does not answer")
            return fallback

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        return self._forgiving("get", default, key, default, version)

    def get_many(self, keys: Any, version: int | None = None) -> dict[str, Any]:
        return self._forgiving("get_many", {}, keys, version)

    def has_key(self, key: str, version: int | None = None) -> bool:
        return bool(self._forgiving("has_key", False, key, version))

    def add(self, key: str, value: Any, *args: Any, **options: Any) -> bool:
        """Returns True without Redis: `add` is used as a lock, which no other process can acquire either."""
        return bool(self._forgiving("add", True, key, value, *args, **options))

    def set(self, key: str, value: Any, *args: Any, **options: Any) -> None:
        self._forgiving("set", None, key, value, *args, **options)

    def set_many(self, data: Any, *args: Any, **options: Any) -> list[str]:
        return self._forgiving("set_many", [], data, *args, **options)

    def touch(self, key: str, *args: Any, **options: Any) -> bool:
        return bool(self._forgiving("touch", False, key, *args, **options))

    def delete(self, key: str, version: int | None = None) -> bool:
        return bool(self._forgiving("delete", False, key, version))

    def delete_many(self, keys: Any, version: int | None = None) -> None:
        self._forgiving("delete_many", None, keys, version)
