"""Steps from a decoded request to its response, in their order.

A call's row in the API table declares its steps. Most requests have no step that waits and are answered synchronously;
the others are answered by `_answer_in_steps`, which has every step.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers import state_writes
from brokers.engine.handlers.auditing import audited
from brokers.engine.handlers.common import chunked_encoding, fresh_topics, turns
from brokers.engine.handlers.context import Call
from brokers.engine.protocol.errors import MalformedRequest, UnsupportedApi


def answer(call: Call, request: Any) -> Any:
    """Returns the response, or an awaitable of it where a step has to wait.

    Raises:
        UnsupportedApi: a session has no handler for this call.
    """
    api = call.api
    if api.handle is None:
        raise UnsupportedApi(f"api key {api.key} is not answered in a session")
    is_looked_for = api.topics_named is not None and fresh_topics.must_look(call, api.topics_named(request))
    if (
        is_looked_for
        or (api.split is not None and turns.is_long(api.split, request))
        or (api.forwarding is not None and api.forwarding.leads_elsewhere(call, request))
        or (api.throttled_first and state_writes.owes_too_much(call))
    ):
        return _answer_in_steps(call, request, is_looked_for=is_looked_for)
    is_audited = api.audit is not None and audited.begin(call)
    image = call.view.image
    response = api.handle(call, request)
    if hasattr(response, "__await__"):
        if not is_audited and api.result_lines is None:
            return response
        return _finish(call, request, response, image, is_audited=is_audited)
    if is_audited:
        audited.record(call, request, response, image)
    if chunked_encoding.is_long(call, response):
        return chunked_encoding.encoded_in_chunks(call.api_key, call.version, response)
    return response


async def _answer_in_steps(call: Call, request: Any, *, is_looked_for: bool) -> Any:
    if is_looked_for:
        await fresh_topics.catch_up(call)
    is_audited = call.api.audit is not None and audited.begin(call)
    return await _finish(call, request, _answer_in_parts(call, request), call.view.image, is_audited=is_audited)


async def _finish(call: Call, request: Any, answering: Awaitable[Any], image: ClusterImage, *, is_audited: bool) -> Any:
    """Awaits the response, records the outcome of the request in the audit log, and encodes a long response."""
    try:
        response = await answering
    except MalformedRequest:
        raise  # nothing was done yet
    except BaseException:
        # A client that disconnects cancels its request, which may have changed something already.
        if is_audited:
            audited.record(call, request, None, image)
        raise
    if is_audited:
        audited.record(call, request, response, image)
    if chunked_encoding.is_long(call, response):
        return await chunked_encoding.encoded_in_chunks(call.api_key, call.version, response)
    return response


async def _answer_in_parts(call: Call, request: Any) -> Any:
    split = call.api.split
    if split is not None and turns.is_long(split, request):
        return await turns.answer_in_turns(split, request, lambda part: _answer_by_coordinators(call, part))
    return await _answer_by_coordinators(call, request)


async def _answer_by_coordinators(call: Call, request: Any) -> Any:
    forwarding = call.api.forwarding
    if forwarding is not None and forwarding.leads_elsewhere(call, request):
        return await forwarding.answer(call, request, _answer_here)
    return await _answer_here(call, request)


async def _answer_here(call: Call, request: Any) -> Any:
    if call.api.throttled_first:
        async with state_writes.paid(call) as paid_call:
            response = _handled(paid_call, request)
    else:
        response = _handled(call, request)
    return await response if hasattr(response, "__await__") else response


def _handled(call: Call, request: Any) -> Any:
    assert call.api.handle is not None, "checked by `answer`"
    return call.api.handle(call, request)
