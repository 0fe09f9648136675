"""Connection counters for the admin port: open by instance, refused and closed by cause."""

from __future__ import annotations

from collections.abc import Iterator

from brokers.engine.network.admission import REFUSALS
from brokers.engine.network.closing import REASONS
from brokers.engine.network.listener import Listeners
from brokers.engine.telemetry.metrics import Sample


def by_instance(listeners: Listeners) -> dict[str, int]:
    """Returns the number of connections of each instance that has any."""
    return {group.name: group.count for group in listeners.groups() if group.count}


def samples(listeners: Listeners) -> Iterator[Sample]:
    counters = listeners.counters
    text = "Open connections of an instance, by its id."
    for name, count in sorted(by_instance(listeners).items()):
        yield Sample("penstock_broker_connections_of_instance", "gauge", text, count, (("instance", name),))
    yield Sample("penstock_broker_connections_accepted", "counter", "Connections accepted.", counters.accepted)
    text = "Connections refused: no list admits it, an instance, address, route or broker has all, or it came too fast."
    for cause in REFUSALS:
        count = counters.refused.get(cause, 0)
        yield Sample("penstock_broker_connections_refused", "counter", text, count, (("cause", cause),))
    text = "Connections that lost their place, by the reason."
    for reason in REASONS:
        count = counters.ended.get(reason, 0)
        yield Sample("penstock_broker_connections_ended", "counter", text, count, (("reason", reason),))
    text = "Pauses in which an instance's new connections were not accepted because there were many."
    yield Sample("penstock_broker_accept_pauses", "counter", text, counters.paced)
    text = "Bytes of requests that are not whole or not processed yet."
    yield Sample("penstock_broker_unread_bytes", "gauge", text, listeners.unread_bytes)
    text = "Bytes of memory of answers that their clients have not read."
    yield Sample("penstock_broker_unsent_bytes", "gauge", text, listeners.unsent_bytes)
