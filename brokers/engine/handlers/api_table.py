"""The API table: one row for each supported Kafka call, in `api_rows`.

A row declares the handler of the call, the rights (WIRE-20) and the topic allow-list (CKA-11) that it requires, the
limit of its requests, and the steps around the handler, which `dispatch` runs in their order. A new call needs a row, a
handler, its messages below `protocol/messages/`, and its versions in `protocol.apis`; a test compares this table with
the advertised calls.

Calls that read a topic require its allow-list for consuming. Calls that write to it require the list for producing, and
calls that delete, shorten, grow or configure it the list for administration. A call that only shows that a topic exists
requires any of the three. No call changes the lists: the owner edits them in the console and the REST API, and they
outlive the topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers import throttle_time
from brokers.engine.handlers.api_rows import administration, coordinators, records
from brokers.engine.handlers.auditing import changes
from brokers.engine.handlers.common import fresh_topics, long_requests
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.fetch import fetch, legacy
from brokers.engine.handlers.produce import legacy as produce_legacy
from brokers.engine.handlers.produce import produce
from brokers.engine.handlers.served_api import ServedApi
from brokers.engine.handlers.session import DispatchTable, FastCodec, close_unstarted
from brokers.engine.protocol import framing as limits
from brokers.engine.protocol.apis import ADVERTISED_TENANT, FETCH_BATCHES_FROM, PRODUCE_BATCHES_FROM, ApiKey
from brokers.engine.protocol.errors import MalformedRequest, UnsupportedApi
from brokers.engine.protocol.framing import RequestLimit

API_TABLE: Final[Mapping[int, ServedApi]] = {
    int(api.key): api for family in (records, coordinators, administration) for api in family.ROWS
}

FAST_CODEC_HANDLERS: Final[Mapping[int, FastCodec]] = {
    int(ApiKey.PRODUCE): FastCodec(produce.produce, PRODUCE_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.PRODUCE][1]),
    int(ApiKey.FETCH): FastCodec(fetch.fetch, FETCH_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.FETCH][1]),
}
# Older versions of Produce and Fetch, whose record sets are converted.
LEGACY_HANDLERS: Final[Mapping[int, Callable[..., None]]] = {
    int(ApiKey.PRODUCE): produce_legacy.produce_old,
    int(ApiKey.FETCH): legacy.fetch_old,
}


def limit_of(api_key: int) -> RequestLimit:
    """Returns the request limit of a call; an unsupported call has the limit `LISTS`."""
    api = API_TABLE.get(api_key)
    return limits.LISTS if api is None else api.limit


def dispatch(context: RequestContext, request: Any) -> Any:
    """Answers a decoded request by the steps that the row of its call declares.

    Returns the response, or an awaitable of it if a step has to wait (`_dispatch_in_steps`).

    Raises:
        UnsupportedApi: a session has no handler for this call.
    """
    api = context.api
    if api.handle is None:
        raise UnsupportedApi(f"api key {api.key} is not answered in a session")
    reads_change_log = api.named_topics is not None and fresh_topics.must_read_change_log(
        context, api.named_topics(request)
    )
    if (
        reads_change_log
        or (api.split is not None and long_requests.is_long_request(api.split, request))
        or (api.forwarding is not None and api.forwarding.needs_other_brokers(context, request))
        or (api.throttled_first and throttle_time.is_in_debt(context))
    ):
        return _dispatch_in_steps(context, request, reads_change_log=reads_change_log)
    is_audited = api.audit is not None and changes.begin(context)
    image = context.view.image
    response = api.handle(context, request)
    if hasattr(response, "__await__"):
        if not is_audited and api.response_length is None:
            return response
        return RecordedResponse(context, request, response, image, is_audited=is_audited)
    if is_audited:
        changes.record(context, request, response, image)
    if long_requests.is_long_response(context, response):
        return long_requests.encode_in_chunks(context.api_key, context.version, response)
    return response


class RecordedResponse:
    """Awaitable of a response and of `_finish`; `close` closes a coroutine of the handler that has not begun."""

    __slots__ = ("_context", "_image", "_is_audited", "_request", "_response")

    def __init__(
        self, context: RequestContext, request: Any, pending_response: Any, image: ClusterImage, *, is_audited: bool
    ) -> None:
        self._context = context
        self._request = request
        self._response = pending_response
        self._image = image
        self._is_audited = is_audited

    def __await__(self) -> Generator[Any, Any, Any]:
        return _finish(
            self._context, self._request, self._response, self._image, is_audited=self._is_audited
        ).__await__()

    def close(self) -> None:
        close_unstarted(self._response)


async def _dispatch_in_steps(context: RequestContext, request: Any, *, reads_change_log: bool) -> Any:
    if reads_change_log:
        await fresh_topics.catch_up(context)
    is_audited = context.api.audit is not None and changes.begin(context)
    return await _finish(
        context, request, _handle_in_parts(context, request), context.view.image, is_audited=is_audited
    )


async def _finish(
    context: RequestContext, request: Any, pending_response: Awaitable[Any], image: ClusterImage, *, is_audited: bool
) -> Any:
    """Awaits the response, records the outcome of the request in the audit log, and encodes a long response."""
    try:
        response = await pending_response
    except MalformedRequest:
        raise  # nothing was done yet
    except BaseException:
        # A client that disconnects cancels its request, which may have changed something already.
        if is_audited:
            changes.record(context, request, None, image)
        raise
    if is_audited:
        changes.record(context, request, response, image)
    if long_requests.is_long_response(context, response):
        return await long_requests.encode_in_chunks(context.api_key, context.version, response)
    return response


async def _handle_in_parts(context: RequestContext, request: Any) -> Any:
    split = context.api.split
    if split is not None and long_requests.is_long_request(split, request):
        return await long_requests.handle_in_parts(split, request, lambda part: _forward_or_handle(context, part))
    return await _forward_or_handle(context, request)


async def _forward_or_handle(context: RequestContext, request: Any) -> Any:
    forwarding = context.api.forwarding
    if forwarding is not None and forwarding.needs_other_brokers(context, request):
        return await forwarding.forward(context, request, _handle_locally)
    return await _handle_locally(context, request)


async def _handle_locally(context: RequestContext, request: Any) -> Any:
    if context.api.throttled_first:
        async with throttle_time.wait_until_paid(context) as admitted_context:
            response = _call_handler(admitted_context, request)
    else:
        response = _call_handler(context, request)
    return await response if hasattr(response, "__await__") else response


def _call_handler(context: RequestContext, request: Any) -> Any:
    assert context.api.handle is not None, "checked by `dispatch`"
    return context.api.handle(context, request)


DISPATCH_TABLE: Final = DispatchTable(FAST_CODEC_HANDLERS, LEGACY_HANDLERS, API_TABLE, dispatch)
