"""Queries of the web server that PostgreSQL cancelled (`statement_timeout`, `config.settings`)."""

from __future__ import annotations

from django.db import OperationalError
from psycopg.errors import QueryCanceled


def is_query_cancelled(exception: BaseException) -> bool:
    """True for a cancelled query, but no other database error."""
    return isinstance(exception, OperationalError) and isinstance(exception.__cause__, QueryCanceled)
