"""An in-memory cache with the restrictions of Redis: a value that cannot be serialized fails the test."""

from __future__ import annotations

from typing import Any

from django.core.cache.backends.locmem import LocMemCache

from config.cache import JsonSerializer

JSON_SERIALIZER = JsonSerializer()


class JsonLocMemCache(LocMemCache):
    """Django's in-memory cache, behind the product's serializer."""

    def add(self, key: str, value: Any, *args: Any, **options: Any) -> bool:
        return super().add(key, JSON_SERIALIZER.dumps(value), *args, **options)

    def set(self, key: str, value: Any, *args: Any, **options: Any) -> None:
        super().set(key, JSON_SERIALIZER.dumps(value), *args, **options)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        kept = super().get(key, default, version)
        return JSON_SERIALIZER.loads(kept) if isinstance(kept, bytes) else kept
