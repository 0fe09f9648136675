"""Opaque, signed tokens of pages of messages: a direction and an offset for each partition.

A token is bound to the topic and the filters it was made for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.core import signing

from instances.messages.interfaces import NEWER, OLDER, Positions
from tenants.errors import DomainError, FieldError
from tenants.limits import PAGE_TOKEN_CHARS_MAX

_SALT = "penstock.message-page"
_LETTERS = {OLDER: "o", NEWER: "n"}
_DIRECTIONS = {letter: direction for direction, letter in _LETTERS.items()}


def encode(positions: Positions, binding: str) -> str:
    """Returns a token for the page that begins at `positions`."""
    offsets: list[int] = []
    for partition, offset in sorted(positions.offsets.items()):
        offsets += [partition, offset]
    return signing.dumps([_digest(binding), _LETTERS[positions.direction], offsets], salt=_SALT, compress=True)


def decode(token: str, binding: str) -> Positions:
    """Returns the positions in a token. Raises `DomainError` if it is forged or belongs to another list."""
    try:
        if len(token) > PAGE_TOKEN_CHARS_MAX:
            raise signing.BadSignature("too long")
        digest, letter, offsets = signing.loads(token, salt=_SALT)
    except signing.BadSignature:
        raise _bad_token() from None
    if digest != _digest(binding):
        raise _bad_token()
    pairs: Mapping[int, int] = dict(zip(offsets[::2], offsets[1::2], strict=True))
    return Positions(direction=_DIRECTIONS[letter], offsets=pairs)


def binding_of(instance_id: str, topic: str, filters: Mapping[str, Any]) -> str:
    """Returns a text that identifies the list to which tokens are bound."""
    return f"{instance_id} {topic} {sorted((name, value) for name, value in filters.items() if value is not None)}"


def _digest(binding: str) -> str:
    return hashlib.sha256(binding.encode()).hexdigest()[:16]


def _bad_token() -> DomainError:
    return DomainError(
        "The page token is not one of this list. Start again without it.",
        code="invalid_page_token",
        errors=[FieldError(parameter="page_token", detail="Not a token of this list.", code="invalid_page_token")],
    )
