"""Cursor pagination: `page_size` and `page_token` in, `{"items": [...], "next_page_token": ...}` out.

A token contains the sort key of the last item, is signed, and is bound to path and filters. Rows inserted or removed
between two pages neither repeat nor hide others: the next page begins after a key, not at a count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.core import signing
from django.db.models import Model, Q, QuerySet

from tenants.errors import DomainError, FieldError
from tenants.limits import PAGE_TOKEN_CHARS_MAX

Item = TypeVar("Item")
Row = TypeVar("Row", bound=Model)

_SALT = "penstock.page-token"
_INSTANT = "t:"
_TEXT = "s:"


def encode_token(keys: Sequence[Any], binding: str) -> str:
    """Returns an opaque token for the position after `keys` (strings, integers and datetimes)."""
    return signing.dumps([_digest(binding), [_encode_key(key) for key in keys]], salt=_SALT, compress=True)


def decode_token(token: str, binding: str, length: int) -> list[Any]:
    """Returns the sort keys of a token; raises `DomainError(invalid_page_token)` for a forged token or another list."""
    try:
        if len(token) > PAGE_TOKEN_CHARS_MAX:
            raise signing.BadSignature("too long")
        digest, keys = signing.loads(token, salt=_SALT)
    except signing.BadSignature:
        raise _bad_token() from None
    if digest != _digest(binding) or len(keys) != length:
        raise _bad_token()
    return [_decode_key(key) for key in keys]


def page_of_rows(
    rows: QuerySet[Row], *, order: Sequence[str], page_size: int, page_token: str | None, binding: str
) -> tuple[list[Row], str | None]:
    """Returns a page of a queryset and the token of the next page, or None at the end.

    `order` are field names, `-` for descending; the last must be unique. It uses one query for one row more than the
    page.
    """
    rows = rows.order_by(*order)
    if page_token:
        rows = rows.filter(_after(order, decode_token(page_token, binding, len(order))))
    rows_with_next = list(rows[: page_size + 1])
    if len(rows_with_next) <= page_size:
        return rows_with_next, None
    page = rows_with_next[:page_size]
    return page, encode_token([_value(page[-1], name.lstrip("-")) for name in order], binding)


def page_of_items(
    items: Iterable[Item], *, key: Callable[[Item], str], page_size: int, page_token: str | None, binding: str
) -> tuple[list[Item], str | None]:
    """Returns a page of items that are not rows (topics, groups), sorted by a unique string key."""
    remaining = sorted(items, key=key)
    if page_token:
        (after,) = decode_token(page_token, binding, 1)
        remaining = [item for item in remaining if key(item) > after]
    page = remaining[:page_size]
    return page, encode_token([key(page[-1])], binding) if len(remaining) > page_size else None


def _after(order: Sequence[str], keys: Sequence[Any]) -> Q:
    """Returns the condition for rows after `keys`: for (a, b) it is a > x, or a = x and b > y (< for descending
    fields).
    """
    condition = Q()
    equal = Q()
    for name, key in zip(order, keys, strict=True):
        field = name.lstrip("-")
        condition |= equal & Q(**{f"{field}__{'lt' if name.startswith('-') else 'gt'}": key})
        equal &= Q(**{field: key})
    return condition


def _value(row: Any, path: str) -> Any:
    for part in path.split("__"):
        row = getattr(row, part)
    return row


def _encode_key(key: Any) -> Any:
    if isinstance(key, datetime):
        return _INSTANT + key.isoformat()
    return _TEXT + key if isinstance(key, str) else key


def _decode_key(key: Any) -> Any:
    if not isinstance(key, str):
        return key
    return datetime.fromisoformat(key.removeprefix(_INSTANT)) if key.startswith(_INSTANT) else key.removeprefix(_TEXT)


def _digest(binding: str) -> str:
    return hashlib.sha256(binding.encode()).hexdigest()[:16]


def _bad_token() -> DomainError:
    return DomainError(
        "The page token is not one of this list. Start again without it.",
        code="invalid_page_token",
        errors=[FieldError(parameter="page_token", detail="Not a token of this list.", code="invalid_page_token")],
    )
