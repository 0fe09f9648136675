"""The cache, which may be lost: without Redis every look-up is a miss and every write is dropped.

Sign-in limits and cached pages live here. Losing them degrades; a page that fails because a counter could not be read
would be worse.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

REST_S = 5.0  # after a failure Redis is left alone this long: a dead server costs one timeout, not one per call


class ForgivingRedisCache(RedisCache):
    """Django's Redis cache that answers "not there" where Redis does not answer."""

    _resting_until_s = 0.0

    def _forgiving(self, name: str, otherwise: Any, *args: Any, **options: Any) -> Any:
        if time.monotonic() < ForgivingRedisCache._resting_until_s:
            return otherwise
        try:
            return getattr(super(), name)(*args, **options)
        except (RedisError, OSError):
            ForgivingRedisCache._resting_until_s = time.monotonic() + REST_S
            logger.warning("the cache is off: redis does not answer")
            return otherwise

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        return self._forgiving("get", default, key, default, version)

    def get_many(self, keys: Any, version: int | None = None) -> dict[str, Any]:
        return self._forgiving("get_many", {}, keys, version)

    def has_key(self, key: str, version: int | None = None) -> bool:
        return bool(self._forgiving("has_key", False, key, version))

    def add(self, key: str, value: Any, *args: Any, **options: Any) -> bool:
        """True without Redis: `add` is used as a lock, and a lock nobody else can hold is free."""
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
