"""The environment of one follower that most fetch tests start with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.brokers.engine.replication.stepped_world import SteppedWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SteppedWorld]:
    world = SteppedWorld(tmp_path)
    yield world
    world.fetchers.close()
    world.table.close()
