"""Sample messages: orders of a small shop. Pure."""

from __future__ import annotations

import json
from datetime import datetime

from instances.messages.interfaces import NewMessage
from instances.quickstart.limits import PUSH_MESSAGE_BYTES, PUSH_MESSAGES_PER_TURN, SAMPLE_MESSAGES_PER_TURN

ITEMS = ("rope", "lantern", "kettle", "compass", "tent")
CENTS = (450, 1_290, 2_400, 3_975, 18_900)


def sample_messages(turn: int, now: datetime) -> list[NewMessage]:
    """Returns the messages of one turn. The numbers of orders continue from turn to turn."""
    first = turn * SAMPLE_MESSAGES_PER_TURN + 1
    return [_order(number, now) for number in range(first, first + SAMPLE_MESSAGES_PER_TURN)]


def heavy_messages() -> list[NewMessage]:
    """Returns the messages of one turn of "push the limit": more than the quota admits."""
    value = json.dumps({"demo": "push the limit"}).encode().ljust(PUSH_MESSAGE_BYTES)
    return [NewMessage(key=b"demo", value=value) for _ in range(PUSH_MESSAGES_PER_TURN)]


def _order(number: int, now: datetime) -> NewMessage:
    item_index = number % len(ITEMS)
    count = 1 + number % 3
    value = {
        "order": f"o-{number}",
        "item": ITEMS[item_index],
        "count": count,
        "total": f"{CENTS[item_index] * count / 100:.2f}",
        "currency": "EUR",
        "at": now.isoformat(timespec="milliseconds"),
    }
    return NewMessage(
        key=f"o-{number}".encode(), value=json.dumps(value).encode(), headers=(("source", b"penstock-quickstart"),)
    )
