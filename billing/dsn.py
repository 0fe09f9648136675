"""Connection string of Django's database for libpq; the pipeline accesses PostgreSQL without the ORM."""

from __future__ import annotations

from django.db import connection
from psycopg.conninfo import make_conninfo

# Prefixes of libpq's options for verification of the server's certificate and for client certificates.
TLS_OPTION_PREFIXES = ("ssl", "channel_binding")


def conninfo() -> str:
    """Returns the connection string of the default database (in tests, of the test database)."""
    settings = connection.settings_dict
    parts = {
        "dbname": settings["NAME"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    } | {name: value for name, value in settings["OPTIONS"].items() if name.startswith(TLS_OPTION_PREFIXES)}
    return make_conninfo("", **{name: value for name, value in parts.items() if value})
