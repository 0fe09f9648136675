"""Copies of requests that create or delete topics, for the audit log: forwarding changes their lists and names."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from brokers.engine.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest
from brokers.engine.scheduling.time_slice import TimeSlice


async def copied_request(request: Any) -> Any:
    """Returns a copy that keeps the tenant's names."""
    if isinstance(request, CreateTopicsRequest):
        time_slice, topics = TimeSlice(), []
        for topic in request.topics:
            topics.append(copy(topic))
            await time_slice.pause()
        return replace(request, topics=topics)
    assert isinstance(request, DeleteTopicsRequest), "other audited calls are not forwarded"
    return replace(request, topic_names=list(request.topic_names))


def in_order_of(request: Any, response: Any) -> Any:
    """Returns the request with its topics in the order of their results, since refused ones come last."""
    if not isinstance(request, CreateTopicsRequest):
        return request
    assert isinstance(response, CreateTopicsResponse)
    by_name = {topic.name: topic for topic in request.topics}
    return replace(request, topics=[by_name[result.name] for result in response.topics if result.name in by_name])
