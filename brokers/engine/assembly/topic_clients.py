"""Clients of one topic for the control plane: bytes by user and client id, in pages of one turn of the event loop.

The report uses the usage counters of metering. They are cumulative since this process began, so the
difference of two reports is a rate. Empty fetches are not counted.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from brokers.contract.usage import DIRECTIONS, OTHER
from brokers.engine.throttling.accounting import InstanceAccounting
from brokers.engine.throttling.usage import UsageCounter

CLIENTS_PER_PAGE: Final = 250

# User, client id, direction, bytes, and the time of the last bytes in ms since the epoch, to within one usage report.
ClientRow = list[Any]


def topic_clients(
    accounting: InstanceAccounting | None, topic: str, *, after: int, started_at_ms: int, now_ms: int
) -> dict[str, Any]:
    """Returns the counters of `topic` after the first `after` counters of the instance. `next` is the start of the next
    page, None at the end. Counters are only ever added, so no row is repeated or omitted between two pages.

    `is_cut`: the instance has more clients than are counted separately, possibly some of this topic.
    """
    rows: list[ClientRow] = []
    following = None
    is_cut = False
    counters = () if accounting is None else accounting.usage.counters()
    for number, counter in enumerate(islice(counters, after, None), after):
        counted_topic, _user, _client_id, direction = counter.key
        if direction not in DIRECTIONS:
            continue
        if counted_topic == OTHER:
            is_cut = True
        elif counted_topic == topic and counter.requests:
            if len(rows) == CLIENTS_PER_PAGE:
                following = number
                break
            rows.append(_row(counter, now_ms))
    return {
        "now_ms": now_ms,
        "alive_since_ms": started_at_ms,
        "clients": rows,
        "is_cut": is_cut,
        "next": following,
    }


def _row(counter: UsageCounter, now_ms: int) -> ClientRow:
    _topic, user, client_id, direction = counter.key
    return [user, client_id, direction, counter.bytes, counter.changed_ms if counter.is_reported else now_ms]
