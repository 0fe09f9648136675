"""Wiring for every test: Django uses the embedded PostgreSQL, started only when a test asks for the database.

The broker's modules are the plain ones, in this process and in those that tests start, unless PENSTOCK_NATIVE=1 asks
for the compiled ones (`make test-native`); nothing of the engine may be imported before that is settled.
"""

from __future__ import annotations

import os

from brokers.native import finder

if os.environ.setdefault(finder.SWITCH, finder.OFF) != finder.OFF and not finder.install():
    raise SystemExit("PENSTOCK_NATIVE is set, but the modules are not compiled from these sources: make native")

# Java here lives for a minute: what its second compiler spends on making Spark fast never comes back.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

import dj_database_url
import hypothesis
import pytest
from django.conf import settings
from django.db import connections

from config.embedded.postgres import EmbeddedPostgres
from config.translations import compile_stale
from tests.testkit import depth

# How long an example takes says how busy the machine is: whatever measures time is marked `quiet`.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")
# `make test` draws from the seed that it prints, and keeps nothing for the next run (decision 85).
# A property that names no number of examples has as many; on a CI host Hypothesis itself would draw the same each time.
hypothesis.settings.register_profile(
    "seeded", database=None, derandomize=False, max_examples=depth.number_from("PENSTOCK_EXAMPLES", short=25, long=100)
)

pytest_plugins = [
    "tests.testkit.services",
    "tests.testkit.sharing",
    "tests.testkit.costs",
    "tests.testkit.depth_plugin",
    "tests.testkit.stack",
    "tests.testkit.uncached",
]


def pytest_configure() -> None:
    """Settings that make tests fast and keep them off services they did not ask for."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.CACHES = {"default": {"BACKEND": "tests.testkit.json_cache.JsonLocMemCache"}}
    settings.CELERY_BROKER_URL = "memory://"
    settings.WHITENOISE_USE_FINDERS = False
    settings.WHITENOISE_AUTOREFRESH = True  # no scan, and no warning about a directory nobody collected
    compile_stale(settings.LOCALE_PATHS)  # before the first page of any test: what is loaded then is kept


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The server goes with its database: dropping it before would only trip over a thread's last connection."""
    return True


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: EmbeddedPostgres) -> None:
    """pytest-django asks for this before it makes the test database."""
    address = dj_database_url.parse(postgres.url)
    for alias in connections:
        connections[alias].settings_dict.update(
            {key: address[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
        )
