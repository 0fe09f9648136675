"""Implements `instances.topics.interfaces.topic_report`: figures of all topics of an instance, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brokers.limits import TOPIC_PAGES_MAX
from brokers.monitoring import observe
from instances.topics.interfaces import BrokerTopics, ReportedTopic, TopicReport


def topic_report(instance_id: str) -> TopicReport:
    """Queries all brokers of the instance at once. A broker that stops answering between two pages is in `silent`."""
    path = f"/v1/instances/{instance_id}/topic_figures"
    pages, silent = observe.query_all_pages(observe.targets_of_instance(instance_id), path, TOPIC_PAGES_MAX)
    return TopicReport(
        brokers={number: _broker_topics(bodies) for number, bodies in pages.items()},
        silent=silent,
        refused=observe.refused_topics(bodies[0] for bodies in pages.values()),
    )


def _broker_topics(bodies: Sequence[Mapping[str, Any]]) -> BrokerTopics:
    return BrokerTopics(
        now_ms=int(bodies[-1]["now_ms"]),
        alive_since_ms=int(bodies[-1]["alive_since_ms"]),
        topics=[ReportedTopic._make(figures) for body in bodies for figures in body["topics"]],
    )
