"""Connection string of Django's database for libpq; the pipeline accesses PostgreSQL without the ORM."""

from __future__ import annotations

from django.db import connection
from psycopg import pq
from psycopg.conninfo import make_conninfo


def conninfo() -> str:
    """Returns the connection string of the default database (in tests, of the test database).

    It has all options of libpq that Django's connection has: TLS, timeouts, which server to choose.
    """
    libpq_options = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    settings = connection.settings_dict
    parts = {
        "dbname": settings["NAME"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    } | {name: value for name, value in settings["OPTIONS"].items() if name in libpq_options}
    return make_conninfo("", **{name: value for name, value in parts.items() if value not in (None, "")})
