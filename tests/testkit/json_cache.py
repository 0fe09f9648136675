"""A cache in memory that holds what Redis would: a value that cannot be kept there fails the test that keeps it."""

from __future__ import annotations

from typing import Any

from django.core.cache.backends.locmem import LocMemCache

from config.cache import JsonSerializer

SERIALIZER = JsonSerializer()


class JsonLocMemCache(LocMemCache):
    """Django's cache in memory, behind the serializer of the product's."""

    def add(self, key: str, value: Any, *args: Any, **options: Any) -> bool:
        return super().add(key, SERIALIZER.dumps(value), *args, **options)

    def set(self, key: str, value: Any, *args: Any, **options: Any) -> None:
        super().set(key, SERIALIZER.dumps(value), *args, **options)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        kept = super().get(key, default, version)
        return SERIALIZER.loads(kept) if isinstance(kept, bytes) else kept
