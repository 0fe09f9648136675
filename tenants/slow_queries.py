"""Queries that PostgreSQL gave up for the web server (`statement_timeout`, `config.settings`)."""

from __future__ import annotations

from django.db import OperationalError
from psycopg.errors import QueryCanceled


def is_given_up(exception: BaseException) -> bool:
    """Whether it is that, and no other trouble of the database."""
    return isinstance(exception, OperationalError) and isinstance(exception.__cause__, QueryCanceled)
