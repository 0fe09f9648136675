"""Containment of errors of one tenant, instance or cluster in loops over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

log = structlog.get_logger(__name__)


@contextmanager
def contained(event: str, **subject: str | int | None) -> Iterator[None]:
    """Runs one iteration of a loop over many tenants. An exception is logged as `event` with the `subject`.

    Input of tenants reaches these loops: timestamps of records, names of clients, responses of webhooks. A value that
    one iteration cannot handle must not stop monitoring, billing or notification of other tenants.
    """
    try:
        yield
    except Exception:
        log.exception(event, **subject)
