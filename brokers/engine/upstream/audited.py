"""Copies of requests for the audit log, which are needed because forwarding changes the requests' lists and names."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final, NamedTuple

from brokers.engine.protocol.messages.configs import IncrementalAlterConfigsRequest
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest
from brokers.engine.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest
from brokers.engine.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from brokers.engine.scheduling.time_slice import TimeSlice

_NO_GENERATION: Final = -1


class NamedItems(NamedTuple):
    """Fields of a request with the named items that it changes, and of the response with their results. Items without
    `name` are the names themselves.
    """

    items: str
    name: str
    results: str
    result_name: str


_BY_TOPIC: Final = NamedItems("topics", "name", "topics", "name")
_ITEMS: Final[Mapping[type[Any], NamedItems]] = {
    CreateTopicsRequest: _BY_TOPIC,
    DeleteTopicsRequest: NamedItems("topic_names", "", "responses", "name"),
    CreatePartitionsRequest: NamedItems("topics", "name", "results", "name"),
    IncrementalAlterConfigsRequest: NamedItems("resources", "resource_name", "responses", "resource_name"),
    DeleteRecordsRequest: _BY_TOPIC,
    DeleteGroupsRequest: NamedItems("groups_names", "", "results", "group_id"),
    OffsetDeleteRequest: _BY_TOPIC,
    OffsetCommitRequest: _BY_TOPIC,
}


def is_audited(request: Any) -> bool:
    """True if the request is written to the audit log: all requests except the frequent commits of group members."""
    if not isinstance(request, OffsetCommitRequest):
        return True
    is_member = request.member_id or request.group_instance_id
    return request.generation_id_or_member_epoch == _NO_GENERATION and not is_member


async def copy_request(request: Any) -> Any:
    """Returns a copy of the request whose items keep the tenant's names."""
    fields = _ITEMS[type(request)]
    time_slice, items = TimeSlice(), []
    for item in getattr(request, fields.items):
        items.append(copy(item))
        await time_slice.pause()
    return replace(request, **{fields.items: items})


async def reorder_like_results(request: Any, response: Any) -> Any:
    """Returns the request with its items in the order of their results in the response.

    The orders differ because refused items come last, and because the upstream has an order of its own. Items without a
    result are left out.
    """
    fields = _ITEMS[type(request)]
    time_slice, items_by_name = TimeSlice(), {}
    for item in getattr(request, fields.items):
        items_by_name[getattr(item, fields.name) if fields.name else item] = item
        await time_slice.pause()
    items = []
    for result in getattr(response, fields.results):
        name = getattr(result, fields.result_name)
        if name in items_by_name:
            items.append(items_by_name[name])
        await time_slice.pause()
    return replace(request, **{fields.items: items})
