"""Unique names that a concurrent request took between the check and the write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, transaction

from tenants.errors import Conflict


@contextmanager
def raise_if_taken(constraint: str, refusal: Conflict) -> Iterator[None]:
    """Context manager around the write of a free name: raises `refusal` if the write violates the constraint.

    A change has locked its row, and cannot lock the tenant instead, because a tenant is locked before its rows.
    """
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if constraint not in str(error):
            raise
        raise refusal from None
