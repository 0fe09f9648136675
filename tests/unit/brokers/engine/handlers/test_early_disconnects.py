"""Clients that disconnect before the first step of their request: its handler is closed, and nothing is changed."""

from __future__ import annotations

import asyncio
import gc
import warnings
from ipaddress import ip_address
from typing import Any

import pytest

from brokers.engine.handlers.api_table import API_TABLE, dispatch
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.session import Session
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from brokers.engine.protocol.messages.transactions import EndTxnRequest
from tests.unit.brokers.engine.handlers.conftest import MINE, House

CREATION = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)])
END = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)


def connection_of(house: House) -> Any:
    """Returns the broker's side of the connection `house.mine`."""
    (connection,) = (
        connection
        for group in house.broker.broker.listeners.groups()
        if group.name == MINE
        for listener in group.listeners
        for connection in listener.connections
    )
    return connection


@pytest.mark.parametrize(
    ("api_key", "version", "request_"),
    [(ApiKey.END_TXN, 3, END), (ApiKey.CREATE_TOPICS, 7, CREATION)],
    ids=["not audited", "audited"],
)
async def test_a_handler_that_has_not_begun_is_closed_with_its_connection(
    house: House, api_key: ApiKey, version: int, request_: Any
) -> None:
    connection = connection_of(house)
    frame = encode_request_frame(api_key, version, 1, "test", encode_request(api_key, version, request_))[4:]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        connection.session.on_frame(memoryview(frame), 0, len(frame))
        assert connection.session.cancel is not None, "the request waits for its first step"
        connection.close("the client has gone")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
    assert [str(warning.message) for warning in shown] == []
    assert f"{MINE}.orders" not in house.broker.broker.current.image.topics


async def test_an_audited_handler_that_waits_for_its_turn_is_closed_with_its_request(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task of a request that was decoded in pieces has begun by then, so that closing it is the task's own work."""
    session, turn = connection_of(house).session, asyncio.get_running_loop().create_future()
    monkeypatch.setattr(Session, "turn_to_resume", lambda _session: turn)
    api = API_TABLE[ApiKey.CREATE_TOPICS]
    context = RequestContext(session.services, session.view(), api, 7, "test", ip_address("127.0.0.1"))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        task = asyncio.create_task(session._finish(context, 1, dispatch(context, CREATION)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
    assert [str(warning.message) for warning in shown] == []
    assert f"{MINE}.orders" not in house.broker.broker.current.image.topics
