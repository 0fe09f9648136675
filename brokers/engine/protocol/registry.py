"""Registry of message classes, whose modules are imported on first use to save memory and start-up time."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from brokers.engine.protocol.apis import APIS
from brokers.engine.protocol.fields import MESSAGES, Direction


def message_class(api_key: int, direction: Direction) -> type[Any]:
    """Returns the declared class of an API's request or response. Raises KeyError for an unknown api key."""
    result = MESSAGES.get((api_key, direction))
    if result is None:
        import_module(f"brokers.engine.protocol.messages.{APIS[api_key].module}")
        result = MESSAGES[api_key, direction]
    return result
