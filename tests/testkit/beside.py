"""Two concurrent transactions, each on its own connection, for tests marked `django_db(transaction=True)`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import connection


def is_any_session_waiting() -> bool:
    """True if any session waits for a lock of another one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


def start_beside(work: Callable[[], object]) -> tuple[threading.Thread, list[Exception]]:
    """Starts a call on a connection of its own; its exception is in the list when the thread has ended."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as failure:
            errors.append(failure)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors
