"""Queries with U+0000, which Kafka's names may contain and text of PostgreSQL cannot."""

from __future__ import annotations

from django.db import DataError
from psycopg.errors import UntranslatableCharacter

# The driver refuses such a text before it is sent, by an error without a code.
DRIVERS_WORDS = "cannot contain NUL"


def is_refused(exception: BaseException) -> bool:
    """True for a query that was refused because of U+0000 in text or JSON, but no other database error."""
    if not isinstance(exception, DataError):
        return False
    return isinstance(exception.__cause__, UntranslatableCharacter) or DRIVERS_WORDS in str(exception)
