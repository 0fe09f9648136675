"""Finds the class of a message, importing its family on first use: who never sees an ACL call never loads it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from brokers.engine.protocol.apis import APIS
from brokers.engine.protocol.fields import MESSAGES, Direction


def message_class(api_key: int, direction: Direction) -> type[Any]:
    """The declared class of this API's request or response. Raises KeyError for an api key not in A.4."""
    result = MESSAGES.get((api_key, direction))
    if result is None:
        import_module(f"brokers.engine.protocol.messages.{APIS[api_key].module}")
        result = MESSAGES[api_key, direction]
    return result
