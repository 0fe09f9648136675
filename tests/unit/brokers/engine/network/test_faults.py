"""A failure of our own in one request closes its connection and is counted; others are served (decision 22)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.assembly import route_sessions
from brokers.engine.handlers.api_table import DISPATCH_TABLE
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.in_process import InProcessBroker

EVERYTHING = MetadataRequest(topics=None)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with InProcessBroker(tmp_path) as running:
        yield running


def at_once(call: Any, request: Any) -> Any:
    raise RuntimeError("a mistake of ours")


async def later(call: Any, request: Any) -> Any:
    raise RuntimeError("a mistake of ours")


async def an_answer_that_does_not_fit(call: Any, request: Any) -> DescribeClusterResponse:
    return DescribeClusterResponse(controller_id=1 << 40)


@pytest.mark.parametrize("handler", [at_once, later, an_answer_that_does_not_fit])
async def test_a_mistake_of_ours_ends_one_connection_only(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, handler: Callable[..., Any]
) -> None:
    api = replace(DISPATCH_TABLE.apis[ApiKey.DESCRIBE_CLUSTER], handle=handler)
    broken = DISPATCH_TABLE._replace(apis={**DISPATCH_TABLE.apis, int(api.key): api})
    monkeypatch.setattr(route_sessions, "DISPATCH_TABLE", broken)
    port = await broker.create_instance("ins-aaaaaaaa")
    unlucky, other = await broker.client(port), await broker.client(port)

    with pytest.raises((ConnectionError, EOFError)):
        await unlucky.call(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())

    assert broker.broker.listeners.counters.faults == 1
    assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []
