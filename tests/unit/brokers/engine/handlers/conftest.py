"""A broker in the test's loop with two instances, and a connection to each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testkit.in_process import InProcessBroker
from tests.testkit.wire import WireClient

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"


@dataclass
class House:
    """`mine` and `theirs` are connections to the ports of two instances of one broker."""

    broker: InProcessBroker
    mine: WireClient
    theirs: WireClient
    my_port: int

    async def topic(self, name: str = "orders", partitions: int = 1, **config: str) -> bytes:
        return await self.broker.create_topic(self.mine, name, partitions, **config)


@pytest.fixture
def overrides() -> dict[str, str]:
    """Broker settings of `house`; a module may say otherwise."""
    return {}


@pytest.fixture
async def house(tmp_path: Path, overrides: dict[str, str]) -> AsyncIterator[House]:
    async with InProcessBroker(tmp_path, overrides=overrides) as broker:
        my_port = await broker.create_instance(MINE)
        their_port = await broker.create_instance(THEIRS)
        yield House(broker, await broker.client(my_port), await broker.client(their_port), my_port)
