"""Wiring for every test: Django uses the embedded PostgreSQL, started only when a test asks for the database."""

from __future__ import annotations

import dj_database_url
import pytest
from django.conf import settings
from django.db import connections

from config.embedded.postgres import EmbeddedPostgres

pytest_plugins = ["tests.support.services", "tests.support.stack"]


def pytest_configure() -> None:
    """Settings that make tests fast and keep them off services they did not ask for."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.CELERY_BROKER_URL = "memory://"
    settings.WHITENOISE_USE_FINDERS = False
    settings.WHITENOISE_AUTOREFRESH = True  # no scan, and no warning about a directory nobody collected


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: EmbeddedPostgres) -> None:
    """pytest-django asks for this before it makes the test database."""
    address = dj_database_url.parse(postgres.url)
    for alias in connections:
        connections[alias].settings_dict.update(
            {key: address[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
        )
