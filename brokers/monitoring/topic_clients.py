"""Implements `instances.clients.interfaces.topic_traffic`: counters of the clients of one topic, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from brokers.limits import TOPIC_CLIENT_PAGES_MAX
from brokers.monitoring import observe
from instances.clients.interfaces import BrokerTopicTraffic, ClientCounter, TopicTraffic


def topic_traffic(instance_id: str, topic: str) -> TopicTraffic:
    """Queries all brokers of the instance at once. A broker that stops answering between two pages is in `silent`."""
    path = f"/v1/instances/{instance_id}/topic_clients?{urlencode({'name': topic})}"
    pages, silent = observe.query_all_pages(observe.targets_of_instance(instance_id), path, TOPIC_CLIENT_PAGES_MAX)
    return TopicTraffic(brokers={number: _broker_traffic(bodies) for number, bodies in pages.items()}, silent=silent)


def _broker_traffic(bodies: Sequence[Mapping[str, Any]]) -> BrokerTopicTraffic:
    return BrokerTopicTraffic(
        now_ms=int(bodies[-1]["now_ms"]),
        alive_since_ms=int(bodies[-1]["alive_since_ms"]),
        counters=tuple(ClientCounter._make(row) for body in bodies for row in body["clients"]),
        is_cut=any(body["is_cut"] for body in bodies) or bodies[-1]["next"] is not None,
    )
