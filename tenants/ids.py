"""Typed ids: a prefix for the kind of object, and random characters.

`ins-k3v9x0qa` is the same string in the API, in ZooKeeper and in internal names. Ids are primary keys. They are not
reused: new ones are random, and most rows are marked (removed, revoked, deleted) instead of deleted from the table.
"""

from __future__ import annotations

import re
import secrets
import string
from functools import partial
from typing import Any

from django.db import models

ID_ALPHABET = string.ascii_lowercase + string.digits
ID_RANDOM_CHARS = 8
ID_LONG_RANDOM_CHARS = 16  # for objects that exist by the million: with 8 characters a million ids would collide
ID_CHARS_MAX = 32


def new_id(prefix: str, random_chars: int = ID_RANDOM_CHARS) -> str:
    """Returns a new id such as `ins-k3v9x0qa`."""
    return f"{prefix}-{''.join(secrets.choice(ID_ALPHABET) for _ in range(random_chars))}"


def id_pattern(prefix: str, random_chars: int = ID_RANDOM_CHARS) -> str:
    """Returns the regular expression (whole string) of ids with this prefix, for schemas and validators."""
    return f"^{re.escape(prefix).replace(chr(92) + '-', '-')}-[a-z0-9]{{{random_chars}}}$"


def is_id(text: str, prefix: str, random_chars: int = ID_RANDOM_CHARS) -> bool:
    """True if `text` has the form of an id of this kind, whether or not it exists."""
    return re.fullmatch(id_pattern(prefix, random_chars)[1:-1], text) is not None


class TypedIdField(models.CharField):
    """Primary key with a generated typed id: `id = TypedIdField("ins")`."""

    def __init__(self, prefix: str = "", random_chars: int = ID_RANDOM_CHARS, **kwargs: Any) -> None:
        self.prefix = prefix
        self.random_chars = random_chars
        kwargs["max_length"] = ID_CHARS_MAX
        kwargs["primary_key"] = True
        kwargs["editable"] = False
        kwargs["default"] = partial(new_id, prefix, random_chars)
        super().__init__(**kwargs)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        for derived in ("max_length", "primary_key", "editable", "default"):
            kwargs.pop(derived, None)
        return name, path, [self.prefix, self.random_chars, *args], kwargs
