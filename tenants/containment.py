"""Errors of one tenant, instance or cluster, kept from all others that the same loop handles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

log = structlog.get_logger(__name__)


@contextmanager
def contained(event: str, **subject: str | int | None) -> Iterator[None]:
    """Runs one pass of a loop over many tenants. An exception there is logged as `event`, with the `subject` that
    raised it, and the loop goes on with the next pass.

    What tenants write reaches these loops: the time of a record, the name of a client, the answer of a webhook. One
    value that a pass cannot handle must not keep the others from being watched, billed or told.
    """
    try:
        yield
    except Exception:
        log.exception(event, **subject)
