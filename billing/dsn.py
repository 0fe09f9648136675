"""Django's database as a libpq connection string, for the pipeline, which speaks to PostgreSQL without the ORM."""

from __future__ import annotations

from django.db import connection
from psycopg.conninfo import make_conninfo

# Of libpq: how the server's certificate is looked at, and what is shown to it.
TLS_OPTIONS = ("ssl", "channel_binding")


def conninfo() -> str:
    """Connection string of the default database (in tests: of the test database)."""
    settings = connection.settings_dict
    parts = {
        "dbname": settings["NAME"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    } | {name: value for name, value in settings["OPTIONS"].items() if name.startswith(TLS_OPTIONS)}
    return make_conninfo("", **{name: value for name, value in parts.items() if value})
